// Concat, split, shuffle and embedding. If output and input have the same format, with codes of
// whole bytes, codes are copied: nothing is decoded, so no bit changes.
#include <algorithm>
#include <cstring>

#include "ulp/backend/cpu/example.h"
#include "ulp/backend/cpu/move.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/ops/move.h"
#include "ulp/tensor/memory.h"

namespace ulp::example {
namespace {

size_t channels_of(const Shape& shape) { return static_cast<size_t>(shape.back()); }

// Elements of a row of concat and split.
size_t row_of(const Node& node, const Shape& shape) {
  return static_cast<size_t>(joined_rows(node, shape).width);
}

// Bytes of a code that may be copied from one tensor to the other; 0 if values must be decoded.
size_t movable_bytes(const Problem& problem, TensorId from, TensorId to) {
  const TensorFormat &a = problem.format(from), &b = problem.format(to);
  if (a.operand || a.storage != b.storage || problem.tensor(to).kind == Kind::grad_sum) return 0;
  const Plain* plain = std::get_if<Plain>(&a.storage);
  const int bits = plain != nullptr ? plain->format.bits() : 0;
  return bits == 8 || bits == 16 || bits == 32 ? static_cast<size_t>(bits) / 8 : 0;
}

// Concat and split: pieces of one tensor that are rows of others, or the other way round.
class JoinTask : public Task {
 public:
  JoinTask(const Problem& problem, size_t code_bytes, TensorId whole, std::span<const TensorId> pieces,
           bool joins)
      : whole_(whole),
        joins_(joins),
        rows_(joined_rows(problem.root(), problem.shape(whole)).count),
        stride_(row_of(problem.root(), problem.shape(whole)) * code_bytes) {
    for (const TensorId id : pieces)
      pieces_.push_back({id, row_of(problem.root(), problem.shape(id)) * code_bytes});
  }

  void run(const RunContext& context) override {
    const size_t grain = std::max<size_t>(kGrainBytes / stride_, 1);
    parallel_for(rows_, grain, [&](size_t begin, size_t end) {
      // A few rows of all pieces in turn, so that each cache line of the joined tensor is visited
      // once.
      for (size_t row = begin; row < end; row += grain) {
        const size_t count = std::min(grain, end - row);
        uint8_t* whole = context.bytes(whole_) + row * stride_;
        for (const auto& [id, bytes] : pieces_) {
          uint8_t* piece = context.bytes(id) + row * bytes;
          if (joins_) {
            move::copy_rows(piece, bytes, whole, stride_, bytes, count);
          } else {
            move::copy_rows(whole, stride_, piece, bytes, bytes, count);
          }
          whole += bytes;
        }
      }
    });
  }

 private:
  static constexpr size_t kGrainBytes = size_t{1} << 15;
  struct Piece {
    TensorId id;
    size_t bytes;  // of a row
  };
  const TensorId whole_;
  const bool joins_;
  const size_t rows_, stride_;
  std::vector<Piece> pieces_;
};

void concat(const Call& call) {
  const size_t width = row_of(call.node, call.out_shape()) * sizeof(float);
  uint8_t* out = call.out_bytes(0);
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const size_t part = row_of(call.node, call.in_shape(k)) * sizeof(float);
    move::copy_rows(call.bytes(k), part, out, width, part, call.count);
    out += part;
  }
}

void split(const Call& call) {
  const size_t width = row_of(call.node, call.in_shape(0)) * sizeof(float);
  const uint8_t* in = call.bytes(0);
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const size_t part = row_of(call.node, call.out_shape(k)) * sizeof(float);
    move::copy_rows(in, width, call.out_bytes(k), part, part, call.count);
    in += part;
  }
}

std::unique_ptr<Task> make_concat(const Problem& problem) {
  const Node& node = problem.root();
  size_t bytes = movable_bytes(problem, node.in[0], node.out[0]);
  for (const TensorId in : node.in) bytes = std::min(bytes, movable_bytes(problem, in, node.out[0]));
  if (bytes == 0) return make_task(problem, concat, {Item::joined});
  return std::make_unique<JoinTask>(problem, bytes, node.out[0], node.in, true);
}

std::unique_ptr<Task> make_split(const Problem& problem) {
  const Node& node = problem.root();
  size_t bytes = movable_bytes(problem, node.in[0], node.out[0]);
  for (const TensorId out : node.out) bytes = std::min(bytes, movable_bytes(problem, node.in[0], out));
  if (bytes == 0) return make_task(problem, split, {Item::joined});
  return std::make_unique<JoinTask>(problem, bytes, node.in[0], node.out, false);
}

class ShuffleTask : public Task {
 public:
  ShuffleTask(const Problem& problem, size_t code_bytes)
      : in_(problem.root().in[0]),
        out_(problem.root().out[0]),
        bytes_(code_bytes),
        rows_(problem.shape(in_).rows()),
        channels_(channels_of(problem.shape(in_))),
        groups_(static_cast<size_t>(problem.root().attrs.integer("groups"))) {
    const StorageSize size = storage_size(problem.format(in_).storage, problem.shape(in_).elements());
    side_ = aligned_bytes(size.code_bytes);
    side_bytes_ = 4 * size.side_words;
  }

  void run(const RunContext& context) override {
    const size_t stride = channels_ * bytes_;
    parallel_for(rows_, std::max<size_t>((size_t{1} << 15) / stride, 1), [&](size_t begin, size_t end) {
      move::shuffle_rows(context.bytes(in_) + begin * stride, context.bytes(out_) + begin * stride, bytes_,
                         channels_, groups_, end - begin);
    });
    std::memcpy(context.bytes(out_) + side_, context.bytes(in_) + side_, side_bytes_);
  }

 private:
  const TensorId in_, out_;
  const size_t bytes_, rows_, channels_, groups_;
  size_t side_ = 0, side_bytes_ = 0;  // data besides the codes, valid for the whole tensor
};

void shuffle(const Call& call) {
  move::shuffle_rows(call.bytes(0), call.out_bytes(0), sizeof(float), channels_of(call.in_shape(0)),
                     static_cast<size_t>(call.node.attrs.integer("groups")), call.count);
}

std::unique_ptr<Task> make_shuffle(const Problem& problem) {
  const TensorId in = problem.root().in[0], out = problem.root().out[0];
  const Storage& storage = problem.format(in).storage;
  const bool same = storage == problem.format(out).storage && problem.tensor(out).kind != Kind::grad_sum;
  size_t bytes = movable_bytes(problem, in, out);
  if (same && std::holds_alternative<S2fp8>(storage)) bytes = 1;
  if (bytes != 0) return std::make_unique<ShuffleTask>(problem, bytes);
  // Codes of other widths are decoded and encoded again, which gives the same codes; their events
  // are reported already.
  return make_task(problem, shuffle, {Item::row, 0, same && std::holds_alternative<Plain>(storage)});
}

void embedding(const Call& call) {
  const int64_t rows = call.in_shape(0)[0], width = call.in_shape(0)[1];
  for (size_t i = 0; i < call.count; ++i) {
    const int64_t row = call.indices(1)[i];
    if (row < 0 || row >= rows) {
      fail("backend", "{}: index {} (number {}) is outside the table, which has rows 0 to {}", call.node.name,
           row, call.first + i, rows - 1);
    }
    std::copy_n(call.in(0) + row * width, width, call.out() + static_cast<int64_t>(i) * width);
  }
}

}  // namespace

std::span<const KernelDef> move_kernels() {
  static constexpr KernelDef kernels[] = {
      {"concat", "cpu", why_not, make_concat},
      {"split", "cpu", why_not, make_split},
      {"channel_shuffle", "cpu", why_not, make_shuffle},
      kernel<embedding, Item::index, 0b1>("embedding"),
  };
  return kernels;
}

}  // namespace ulp::example
