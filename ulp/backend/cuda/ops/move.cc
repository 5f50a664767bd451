// Tasks for operators that only move values. Shuffle and transpose move codes; so do concat and
// split if all their tensors have the same format of whole bytes. Then nothing is decoded and no
// event is reported.
#include "ulp/backend/cuda/ops/move.h"

#include <algorithm>
#include <array>
#include <variant>

#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/graph/ops/move.h"
#include "ulp/tensor/memory.h"

namespace ulp::cuda {
namespace {

uint32_t number(int64_t n) { return static_cast<uint32_t>(n); }

struct Axis {
  uint32_t extent;
  uint64_t stride;  // in the source
};

// Reduces the axes to the fewest equivalent ones: axes of extent 1 are dropped, and neighbours that
// stay contiguous are merged.
Walk make_walk(const std::vector<Axis>& axes) {
  std::vector<Axis> few;
  for (const Axis& axis : axes) {
    if (axis.extent == 1) continue;
    if (!few.empty() && few.back().stride == axis.stride * axis.extent) {
      few.back() = {few.back().extent * axis.extent, axis.stride};
    } else {
      few.push_back(axis);
    }
  }
  Walk walk;
  walk.stride[3] = 1;  // of a single element
  const size_t first = 4 - few.size();
  for (size_t i = 0; i < few.size(); ++i) {
    walk.extent[first + i] = few[i].extent;
    walk.stride[first + i] = few[i].stride;
  }
  return walk;
}

// Output channel (q, r) of (channels / groups, groups) is input channel (r, q).
Walk shuffle_walk(const Problem& problem) {
  const Shape& shape = problem.shape(problem.root().in[0]);
  const uint32_t channels = number(shape.back()), groups = number(problem.root().attrs.integer("groups"));
  const uint32_t each = channels / groups;
  return make_walk({{static_cast<uint32_t>(shape.rows()), channels}, {each, 1}, {groups, each}});
}

Walk transpose_walk(const Problem& problem) {
  static constexpr std::array<std::string_view, Shape::kMaxRank> kAxis = {"axis0", "axis1", "axis2", "axis3"};
  const Node& node = problem.root();
  const Shape &in = problem.shape(node.in[0]), &out = problem.shape(node.out[0]);
  std::vector<Axis> axes;
  for (int axis = 0; axis < out.rank(); ++axis) {
    uint64_t stride = 1;
    for (int i = static_cast<int>(node.attrs.integer(kAxis[static_cast<size_t>(axis)])) + 1; i < in.rank();
         ++i)
      stride *= static_cast<uint64_t>(in[i]);
    axes.push_back({number(out[axis]), stride});
  }
  return make_walk(axes);
}

// Bits of codes that can be moved unchanged. 0 if data besides the codes depends on the position in
// the tensor (block scales, extra bits), if formats differ, and for a sum, which is added to.
uint32_t movable_bits(const Problem& problem) {
  const TensorId in = problem.root().in[0], out = problem.root().out[0];
  const Storage& storage = problem.format(out).storage;
  // A weight is rounded to its operand format when it is read.
  const TensorFormat read = read_format(problem, in);
  if (read.operand || read.storage != storage || problem.tensor(out).kind == Kind::grad_sum) return 0;
  if (const Plain* plain = std::get_if<Plain>(&storage)) return number(plain->format.bits());
  return std::holds_alternative<S2fp8>(storage) ? 8 : 0;
}

class MoveCodesTask : public Task {
 public:
  MoveCodesTask(const Problem& problem, const Walk& walk, uint32_t bits)
      : in_(problem.root().in[0]),
        out_(problem.root().out[0]),
        elements_(problem.tensor(out_).elements()),
        walk_(walk),
        bits_(bits) {
    const StorageSize size = storage_size(problem.format(out_).storage, elements_);
    side_at_ = aligned_bytes(size.code_bytes);
    side_ = static_cast<uint32_t>(size.side_words);
  }

  void run(const RunContext& context) override {
    uint8_t *in = context.bytes(in_), *out = context.bytes(out_);
    move_codes(walk_, elements_, bits_, in, out, reinterpret_cast<uint32_t*>(in + side_at_),
               reinterpret_cast<uint32_t*>(out + side_at_), side_, context.stream);
  }

 private:
  const TensorId in_, out_;
  const uint64_t elements_;
  const Walk walk_;
  const uint32_t bits_;
  size_t side_at_;
  uint32_t side_;
};

class MoveValuesTask : public DecodeAroundTask {
 public:
  MoveValuesTask(const Problem& problem, const Walk& walk) : DecodeAroundTask(problem), walk_(walk) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    move_values(walk_, views.in[0], views.out[0], context.state, context.stream);
  }
  const Walk walk_;
};

template <Walk (*walk)(const Problem&)>
std::unique_ptr<Task> make_move(const Problem& problem) {
  if (const uint32_t bits = movable_bits(problem); bits != 0)
    return std::make_unique<MoveCodesTask>(problem, walk(problem), bits);
  return std::make_unique<MoveValuesTask>(problem, walk(problem));
}

// Bytes of a code that concat or split may move; 0 if values must be decoded.
uint32_t movable_bytes(const Problem& problem) {
  const Node& node = problem.root();
  const Storage& storage = problem.format(node.in[0]).storage;
  const Plain* plain = std::get_if<Plain>(&storage);
  if (plain == nullptr || plain->format.bits() % 8 != 0) return 0;
  const auto alike = [&](TensorId id) {
    const TensorFormat& format = problem.format(id);
    return !format.operand && format.storage == storage && problem.tensor(id).kind != Kind::grad_sum;
  };
  const bool all = std::all_of(node.in.begin(), node.in.end(), alike) &&
                   std::all_of(node.out.begin(), node.out.end(), alike);
  return all ? number(plain->format.bits()) / 8 : 0;
}

JoinedRows rows_of(const Problem& problem, TensorId id) {
  return joined_rows(problem.root(), problem.shape(id));
}

// The layout of a row: where each part begins, and where the last one ends.
std::vector<uint32_t> begins_of(const Problem& problem, std::span<const TensorId> parts) {
  std::vector<uint32_t> begin = {0};
  for (const TensorId id : parts) begin.push_back(begin.back() + number(rows_of(problem, id).width));
  return begin;
}

// Rows are counted in 32 bits, also their bytes.
std::string takes_rows(const Problem& problem) {
  const Node& node = problem.root();
  const TensorId whole = node.in.size() > 1 ? node.out[0] : node.in[0];
  if (rows_of(problem, whole).width >= int64_t{1} << 30) return "a row has 2^30 elements or more";
  return takes_one_node(problem);
}

// The parts [first, last), obtained from `get`, of a row whose elements have `size` units each.
template <typename Part, typename Get>
RowParts<Part> some_parts(const std::vector<uint32_t>& begin, size_t first, size_t last, uint32_t size,
                          Get get) {
  RowParts<Part> parts{};
  parts.count = static_cast<uint32_t>(last - first);
  for (size_t k = first; k < last; ++k) parts.part[k - first] = get(k);
  for (size_t k = first; k <= last; ++k) parts.begin[k - first] = begin[k] * size;
  return parts;
}

class ConcatCodesTask : public Task {
 public:
  ConcatCodesTask(const Problem& problem, uint32_t bytes)
      : node_(problem.root()),
        rows_(rows_of(problem, node_.out[0]).count),
        begin_(begins_of(problem, node_.in)),
        bytes_(bytes) {}

  void run(const RunContext& context) override {
    const auto parts = some_parts<const uint8_t*>(begin_, 0, node_.in.size(), bytes_,
                                                  [&](size_t k) { return context.bytes(node_.in[k]); });
    join_bytes(parts, rows_, context.bytes(node_.out[0]), context.stream);
  }

 private:
  const Node& node_;
  const uint64_t rows_;
  const std::vector<uint32_t> begin_;
  const uint32_t bytes_;
};

class ConcatTask : public DecodeAroundTask {
 public:
  explicit ConcatTask(const Problem& problem)
      : DecodeAroundTask(problem), begin_(begins_of(problem, problem.root().in)) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    const auto parts =
        some_parts<StoredView>(begin_, 0, views.in.size(), 1, [&](size_t k) { return views.in[k]; });
    join_values(parts, views.out[0], context.state, context.stream);
  }
  const std::vector<uint32_t> begin_;
};

class ConcatManyTask : public ArrayTask {
 public:
  explicit ConcatManyTask(const Problem& problem)
      : ArrayTask(problem),
        rows_(rows_of(problem, problem.root().out[0]).count),
        begin_(begins_of(problem, problem.root().in)) {}

 private:
  void launch_on(const RunContext& context, const Arrays& arrays) override {
    for (size_t k = 0; k < arrays.in.size(); ++k) {
      paste_columns(arrays.real(k), begin_[k + 1] - begin_[k], rows_, arrays.result(), begin_[k],
                    begin_.back(), context.stream);
    }
  }
  const uint64_t rows_;
  const std::vector<uint32_t> begin_;
};

std::unique_ptr<Task> make_concat(const Problem& problem) {
  if (problem.root().in.size() > kMostParts) return std::make_unique<ConcatManyTask>(problem);
  if (const uint32_t bytes = movable_bytes(problem); bytes != 0)
    return std::make_unique<ConcatCodesTask>(problem, bytes);
  return std::make_unique<ConcatTask>(problem);
}

class SplitCodesTask : public Task {
 public:
  SplitCodesTask(const Problem& problem, uint32_t bytes)
      : node_(problem.root()),
        rows_(rows_of(problem, node_.in[0]).count),
        begin_(begins_of(problem, node_.out)),
        bytes_(bytes) {}

  void run(const RunContext& context) override {
    for (size_t first = 0; first < node_.out.size(); first += kMostParts) {
      const auto parts = some_parts<uint8_t*>(begin_, first, std::min(first + kMostParts, node_.out.size()),
                                              bytes_, [&](size_t k) { return context.bytes(node_.out[k]); });
      divide_bytes(context.bytes(node_.in[0]), begin_.back() * bytes_, rows_, parts, context.stream);
    }
  }

 private:
  const Node& node_;
  const uint64_t rows_;
  const std::vector<uint32_t> begin_;
  const uint32_t bytes_;
};

class SplitTask : public DecodeAroundTask {
 public:
  explicit SplitTask(const Problem& problem)
      : DecodeAroundTask(problem), begin_(begins_of(problem, problem.root().out)) {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    for (size_t first = 0; first < views.out.size(); first += kMostParts) {
      const auto parts = some_parts<WriteView>(begin_, first, std::min(first + kMostParts, views.out.size()),
                                               1, [&](size_t k) { return views.out[k]; });
      divide_values(views.in[0], begin_.back(), parts, context.state, context.stream);
    }
  }
  const std::vector<uint32_t> begin_;
};

std::unique_ptr<Task> make_split(const Problem& problem) {
  if (const uint32_t bytes = movable_bytes(problem); bytes != 0)
    return std::make_unique<SplitCodesTask>(problem, bytes);
  return std::make_unique<SplitTask>(problem);
}

}  // namespace

std::span<const KernelDef> move_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"concat", "move", takes_rows, make_concat},
      {"split", "move", takes_rows, make_split},
      {"channel_shuffle", "move", takes_one_node, make_move<shuffle_walk>},
      {"transpose", "move", takes_one_node, make_move<transpose_walk>},
  };
  return kKernels;
}

}  // namespace ulp::cuda
