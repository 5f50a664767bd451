#include "ulp/backend/cpu/column.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "ulp/backend/access.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

constexpr size_t kColumns = 16;  // minimum per thread: a cache line of fp32

// Rows of a tensor in fp32, a slice at a time: in place, through a buffer, or, if the storage is
// read as a whole, from a buffer for all of it.
class Rows {
 public:
  Rows(const Problem& problem, TensorId id, size_t width) : reader_(problem, id), width_(width) {}

  // Reserves what slices of this many rows need; a slice begins at a whole byte if the rows are a
  // multiple of 8.
  void book(Workspace& workspace, size_t rows) {
    if (reader_.is_direct()) return;
    place_ = workspace.book(reader_.granule() == 0 ? reader_.elements() : rows * width_);
  }
  void begin(const RunContext& context) {
    whole_ = reader_.direct(context);
    if (whole_ == nullptr && reader_.granule() == 0) whole_ = reader_.all(context, floats(context, place_));
  }
  const float* load(const RunContext& context, size_t first, size_t count) const {
    if (whole_ != nullptr) return whole_ + first * width_;
    float* buffer = floats(context, place_);
    parallel_for(count * width_, size_t{1} << 15, [&](size_t begin, size_t end) {
      reader_.read(context, first * width_ + begin, {buffer + begin, end - begin});
    });
    return buffer;
  }
  size_t slice_bytes() const {
    return reader_.is_direct() || reader_.granule() == 0 ? 0 : width_ * sizeof(float);
  }

 private:
  Reader reader_;
  size_t width_, place_ = 0;
  const float* whole_ = nullptr;
};

// Rows at a time such that slices stay in the cache and within the plan's limit: a multiple of 8.
size_t rows_at_a_time(const Problem& problem, size_t row_bytes, size_t rows) {
  if (row_bytes == 0) return rows;
  const size_t room = std::min(problem.plan.options.workspace, size_t{4} << 20);
  return std::min(rows, std::max<size_t>(room / row_bytes / 8 * 8, 8));
}

// A result that is summed completely before it is written: in place, or in a buffer.
class Result {
 public:
  Result(const Problem& problem, TensorId id) : writer_(problem, problem.root(), id) {
    buffered_ = !writer_.may_be_direct() || problem.tensor(id).kind == Kind::grad_sum;
  }
  void book(Workspace& workspace) { place_ = workspace.book(buffered_ ? writer_.elements() : 0); }
  float* begin(const RunContext& context) const {
    float* direct = writer_.direct(context);
    return direct != nullptr ? direct : floats(context, place_);
  }
  void end(const RunContext& context) const {
    if (writer_.direct(context) == nullptr) writer_.all(context, floats(context, place_));
  }

 private:
  Writer writer_;
  bool buffered_;
  size_t place_ = 0;
};

// Numbers the rows of a table that are named, in ascending order.
class NamedRows {
 public:
  NamedRows(size_t table_rows, size_t places) : words_((table_rows + kBits - 1) / kBits), places_(places) {}

  void book(Workspace& workspace) {
    named_ = workspace.book(words_, sizeof(uint64_t));
    before_ = workspace.book(words_, sizeof(int32_t));
    numbers_ = workspace.book(places_, sizeof(int32_t));
  }

  // Writes the rows, then -1, and returns for each place the number of its row among them.
  const int32_t* run(const RunContext& context, const int32_t* indices, std::span<int32_t> rows) const {
    auto* const named = reinterpret_cast<uint64_t*>(context.workspace + named_);
    auto* const before = reinterpret_cast<int32_t*>(context.workspace + before_);
    auto* const numbers = reinterpret_cast<int32_t*>(context.workspace + numbers_);
    std::fill_n(named, words_, 0);
    for (size_t i = 0; i < places_; ++i) named[word_of(indices[i])] |= bit_of(indices[i]);
    size_t count = 0;
    for (size_t w = 0; w < words_; ++w) {
      before[w] = static_cast<int32_t>(count);
      for (uint64_t left = named[w]; left != 0; left &= left - 1)
        rows[count++] = static_cast<int32_t>(w * kBits) + std::countr_zero(left);
    }
    std::fill(rows.begin() + static_cast<ptrdiff_t>(count), rows.end(), -1);
    for (size_t i = 0; i < places_; ++i) {
      const size_t w = word_of(indices[i]);
      numbers[i] = before[w] + std::popcount(named[w] & (bit_of(indices[i]) - 1));
    }
    return numbers;
  }

 private:
  static constexpr size_t kBits = 64;
  static size_t word_of(int32_t index) { return static_cast<size_t>(index) / kBits; }
  static uint64_t bit_of(int32_t index) { return uint64_t{1} << (static_cast<size_t>(index) % kBits); }

  size_t words_, places_;
  size_t named_ = 0, before_ = 0, numbers_ = 0;  // in the workspace
};

// The sums of a table's rows in fp32, in the order of the indices: of all rows, or of those that are
// named.
class EmbeddingGradTask : public Task {
 public:
  explicit EmbeddingGradTask(const Problem& problem)
      : name_(problem.root().name),
        indices_(problem.root().in[1]),
        rows_(static_cast<size_t>(problem.shape(problem.root().out[0])[0])),
        width_(static_cast<size_t>(problem.shape(problem.root().out[0])[1])),
        count_(problem.shape(indices_).elements()),
        dout_(problem, problem.root().in[0], width_),
        table_(problem, problem.root().out[0]) {
    const Node& node = problem.root();
    table_rows_ = rows_;
    if (node.op == &kEmbeddingGradRows) {
      numbers_ = node.out[1];
      table_rows_ = static_cast<size_t>(node.attrs.integer("table_rows"));
      named_.emplace(table_rows_, count_);
    }
    slice_ = rows_at_a_time(problem, dout_.slice_bytes(), count_);
    Workspace workspace;
    dout_.book(workspace, slice_);
    table_.book(workspace);
    if (named_) named_->book(workspace);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    const int32_t* indices = context.as<const int32_t>(indices_);
    for (size_t i = 0; i < count_; ++i) {
      if (indices[i] >= 0 && static_cast<size_t>(indices[i]) < table_rows_) continue;
      fail("backend", "{}: index {} (number {}) is outside the table, which has rows 0 to {}", name_,
           indices[i], i, table_rows_ - 1);
    }
    const int32_t* rows =
        named_ ? named_->run(context, indices, {context.as<int32_t>(numbers_), rows_}) : indices;
    float* table = table_.begin(context);
    parallel_for(rows_ * width_, size_t{1} << 15,
                 [&](size_t begin, size_t end) { std::fill(table + begin, table + end, 0.0f); });
    dout_.begin(context);
    for (size_t first = 0; first < count_; first += slice_) {
      const size_t n = std::min(slice_, count_ - first);
      const float* dout = dout_.load(context, first, n);
      parallel_for(width_, kColumns, [&](size_t begin, size_t end) {
        for (size_t i = 0; i < n; ++i) {
          float* to = table + static_cast<size_t>(rows[first + i]) * width_;
          const float* from = dout + i * width_;
          for (size_t c = begin; c < end; ++c) to[c] += from[c];
        }
      });
    }
    table_.end(context);
  }

 private:
  const std::string& name_;
  const TensorId indices_;
  const size_t rows_, width_, count_;  // rows of the result
  size_t table_rows_ = 0;
  Rows dout_;
  Result table_;
  TensorId numbers_;
  std::optional<NamedRows> named_;
  size_t slice_ = 0;
};

// (dout, x, mean, variance) -> dgamma, dbeta, in double.
class LayerNormGradWeightTask : public Task {
 public:
  explicit LayerNormGradWeightTask(const Problem& problem)
      : epsilon_(problem.root().attrs.real("epsilon")),
        rows_(problem.shape(problem.root().in[0]).rows()),
        width_(static_cast<size_t>(problem.shape(problem.root().in[0]).back())),
        dout_(problem, problem.root().in[0], width_),
        x_(problem, problem.root().in[1], width_),
        mean_(problem, problem.root().in[2], 1),
        variance_(problem, problem.root().in[3], 1),
        dgamma_(problem, problem.root().out[0]),
        dbeta_(problem, problem.root().out[1]) {
    slice_ = rows_at_a_time(problem, dout_.slice_bytes() + x_.slice_bytes(), rows_);
    Workspace workspace;
    dout_.book(workspace, slice_);
    x_.book(workspace, slice_);
    mean_.book(workspace, slice_);
    variance_.book(workspace, slice_);
    dgamma_.book(workspace);
    dbeta_.book(workspace);
    products_ = workspace.book(width_, sizeof(double));
    sums_ = workspace.book(width_, sizeof(double));
    inv_ = workspace.book(slice_, sizeof(double));
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    double* products = reinterpret_cast<double*>(context.workspace + products_);
    double* sums = reinterpret_cast<double*>(context.workspace + sums_);
    double* inv = reinterpret_cast<double*>(context.workspace + inv_);
    std::fill_n(products, width_, 0.0);
    std::fill_n(sums, width_, 0.0);
    for (Rows* rows : {&dout_, &x_, &mean_, &variance_}) rows->begin(context);
    for (size_t first = 0; first < rows_; first += slice_) {
      const size_t n = std::min(slice_, rows_ - first);
      const float *dout = dout_.load(context, first, n), *x = x_.load(context, first, n);
      const float *mean = mean_.load(context, first, n), *variance = variance_.load(context, first, n);
      for (size_t r = 0; r < n; ++r) inv[r] = 1 / std::sqrt(variance[r] + epsilon_);
      parallel_for(width_, kColumns, [&](size_t begin, size_t end) {
        for (size_t r = 0; r < n; ++r) {
          const float *d = dout + r * width_, *v = x + r * width_;
          const double center = mean[r], scale = inv[r];
          for (size_t c = begin; c < end; ++c) {
            products[c] += d[c] * ((v[c] - center) * scale);
            sums[c] += d[c];
          }
        }
      });
    }
    float *dgamma = dgamma_.begin(context), *dbeta = dbeta_.begin(context);
    for (size_t c = 0; c < width_; ++c) {
      dgamma[c] = static_cast<float>(products[c]);
      dbeta[c] = static_cast<float>(sums[c]);
    }
    dgamma_.end(context);
    dbeta_.end(context);
  }

 private:
  const double epsilon_;
  const size_t rows_, width_;
  Rows dout_, x_, mean_, variance_;
  Result dgamma_, dbeta_;
  size_t slice_ = 0, products_ = 0, sums_ = 0, inv_ = 0;
};

// The strides of a transposition: of the input, by axes of the output, which are padded to four in
// front.
struct Transposition {
  static constexpr size_t kRank = Shape::kMaxRank;
  std::array<size_t, kRank> extent{1, 1, 1, 1}, stride{};
  size_t fastest = kRank - 1;  // the output's axis along which the input runs fastest

  explicit Transposition(const Problem& problem) {
    static constexpr std::array<std::string_view, kRank> kAxis = {"axis0", "axis1", "axis2", "axis3"};
    const Node& node = problem.root();
    const Shape &in = problem.shape(node.in[0]), &out = problem.shape(node.out[0]);
    const auto pad = static_cast<int>(kRank) - out.rank();
    for (int axis = 0; axis < out.rank(); ++axis) {
      const auto from = static_cast<int>(node.attrs.integer(kAxis[static_cast<size_t>(axis)]));
      size_t step = 1;
      for (int i = from + 1; i < in.rank(); ++i) step *= static_cast<size_t>(in[i]);
      const auto at = static_cast<size_t>(axis + pad);
      extent[at] = static_cast<size_t>(out[axis]);
      stride[at] = step;
      if (from == in.rank() - 1) fastest = at;
    }
  }

  // Square tiles of the output's last axis and the input's, so that cache lines of both are used
  // completely.
  template <typename T>
  void move(const T* in, T* out) const {
    constexpr size_t kTile = 16;
    std::array<size_t, kRank> step{};
    step[kRank - 1] = 1;
    for (size_t axis = kRank - 1; axis-- > 0;) step[axis] = step[axis + 1] * extent[axis + 1];
    // The two axes outside the tile; if input and output run along the same axis, tiles are rows.
    std::array<size_t, 3> outer{};
    size_t found = 0;
    for (size_t axis = 0; axis + 1 < kRank; ++axis) {
      if (axis != fastest) outer[found++] = axis;
    }
    const bool rows = fastest == kRank - 1;
    const size_t across = rows ? outer[2] : fastest, last = kRank - 1;
    const size_t bands = (extent[across] + kTile - 1) / kTile;
    parallel_for(extent[outer[0]] * extent[outer[1]] * bands, 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const size_t band = i % bands * kTile, b = i / bands % extent[outer[1]],
                     a = i / bands / extent[outer[1]];
        const T* from = in + a * stride[outer[0]] + b * stride[outer[1]];
        T* to = out + a * step[outer[0]] + b * step[outer[1]];
        const size_t band_end = std::min(band + kTile, extent[across]);
        for (size_t tile = 0; tile < extent[last]; tile += rows ? extent[last] : kTile) {
          const size_t tile_end = rows ? extent[last] : std::min(tile + kTile, extent[last]);
          for (size_t y = band; y < band_end; ++y) {
            const T* line = from + y * stride[across];
            T* target = to + y * step[across];
            if (rows) {
              std::memcpy(target, line, extent[last] * sizeof(T));
              continue;
            }
            for (size_t x = tile; x < tile_end; ++x) target[x] = line[x * stride[last]];
          }
        }
      }
    });
  }
};

// Codes of whole bytes are copied; other widths are decoded and encoded again, which gives the same
// codes, and their range events are reported already.
class TransposeTask : public Task {
 public:
  explicit TransposeTask(const Problem& problem)
      : in_(problem.root().in[0]), out_(problem.root().out[0]), axes_(problem) {
    const Storage& storage = problem.format(in_).storage;
    const bool same = storage == problem.format(out_).storage && !problem.format(in_).operand &&
                      problem.tensor(out_).kind != Kind::grad_sum;
    if (same && std::holds_alternative<S2fp8>(storage)) bytes_ = 1;
    if (const Plain* plain = std::get_if<Plain>(&storage); same && plain != nullptr) {
      const int bits = plain->format.bits();
      bytes_ = bits == 8 || bits == 16 || bits == 32 ? static_cast<size_t>(bits) / 8 : 0;
      silent_ = true;
    }
    const StorageSize size = storage_size(storage, problem.tensor(in_).elements());
    side_ = aligned_bytes(size.code_bytes);
    side_bytes_ = 4 * size.side_words;
    if (bytes_ != 0) return;
    reader_ = Reader(problem, in_);
    writer_ = Writer(problem, problem.root(), out_);
    Workspace workspace;
    decoded_ = workspace.book(reader_.space());
    result_ = workspace.book(reader_.elements());
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    switch (bytes_) {
      case 1:
        axes_.move(context.as<const uint8_t>(in_), context.as<uint8_t>(out_));
        break;
      case 2:
        axes_.move(context.as<const uint16_t>(in_), context.as<uint16_t>(out_));
        break;
      case 4:
        axes_.move(context.as<const uint32_t>(in_), context.as<uint32_t>(out_));
        break;
      default:
        return move_values(context);
    }
    std::memcpy(context.bytes(out_) + side_, context.bytes(in_) + side_, side_bytes_);
  }

 private:
  void move_values(const RunContext& context) const {
    float* result = floats(context, result_);
    axes_.move(reader_.all(context, floats(context, decoded_)), result);
    if (!silent_) return writer_.all(context, result);
    parallel_for(reader_.elements(), size_t{1} << 15, [&](size_t begin, size_t end) {
      EncodeStats dropped;
      writer_.write(context, begin, {result + begin, end - begin}, dropped);
    });
  }

  const TensorId in_, out_;
  const Transposition axes_;
  size_t bytes_ = 0;  // of the codes that are copied; 0: values are decoded
  size_t side_ = 0, side_bytes_ = 0;
  bool silent_ = false;
  Reader reader_;
  Writer writer_;
  size_t decoded_ = 0, result_ = 0;
};

}  // namespace

std::span<const KernelDef> column_kernels() {
  static constexpr KernelDef kernels[] = {
      {"embedding_grad", "cpu", takes_one_node, make_one<EmbeddingGradTask>},
      {"embedding_grad_rows", "cpu", takes_one_node, make_one<EmbeddingGradTask>},
      {"layer_norm_grad_weight", "cpu", takes_one_node, make_one<LayerNormGradWeightTask>},
      {"transpose", "cpu", takes_one_node, make_one<TransposeTask>},
  };
  return kernels;
}

}  // namespace ulp
