// Operators that only move numbers. A shuffle and a transposition move codes: the output has the
// input's format, and nothing is decoded, so that not a bit changes and nothing overflows again.
#include <algorithm>
#include <array>
#include <cstring>
#include <variant>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/graph/ops/move.h"
#include "ulp/tensor/memory.h"

namespace ulp::ref {
namespace {

// Which element of the input an element of the output is.
class Source {
 public:
  virtual ~Source() = default;
  virtual size_t of(size_t out) const = 0;
};

class ShuffleSource : public Source {
 public:
  explicit ShuffleSource(const Problem& problem)
      : channels_(static_cast<size_t>(problem.shape(problem.root().in[0]).back())),
        groups_(static_cast<size_t>(problem.root().attrs.integer("groups"))) {}

  size_t of(size_t out) const override {
    const size_t row = out / channels_, channel = out % channels_;
    return row * channels_ + channel % groups_ * (channels_ / groups_) + channel / groups_;
  }

 private:
  size_t channels_, groups_;
};

class TransposeSource : public Source {
 public:
  explicit TransposeSource(const Problem& problem) : out_(problem.shape(problem.root().out[0])) {
    static constexpr std::array<std::string_view, Shape::kMaxRank> kAxis = {"axis0", "axis1", "axis2",
                                                                            "axis3"};
    const Node& node = problem.root();
    const Shape& in = problem.shape(node.in[0]);
    for (int axis = 0; axis < out_.rank(); ++axis) {
      size_t stride = 1;
      for (int i = static_cast<int>(node.attrs.integer(kAxis[static_cast<size_t>(axis)])) + 1; i < in.rank();
           ++i) {
        stride *= static_cast<size_t>(in[i]);
      }
      stride_[static_cast<size_t>(axis)] = stride;
    }
  }

  size_t of(size_t out) const override {
    size_t from = 0;
    for (int axis = out_.rank() - 1; axis >= 0; --axis) {
      const auto extent = static_cast<size_t>(out_[axis]);
      from += out % extent * stride_[static_cast<size_t>(axis)];
      out /= extent;
    }
    return from;
  }

 private:
  Shape out_;
  std::array<size_t, Shape::kMaxRank> stride_{};  // in the input, by axis of the output
};

// Bits of a code where codes can be moved as they are; 0 where something beside them belongs to
// places in the tensor (scales of blocks, extra bits).
size_t movable_bits(const Storage& storage) {
  if (const Plain* plain = std::get_if<Plain>(&storage)) return static_cast<size_t>(plain->format.bits());
  return std::holds_alternative<S2fp8>(storage) ? 8 : 0;
}

// Codes are packed without gaps, least significant bit first (ulp/numeric/codec.h).
void move_codes(const Source& source, size_t n, size_t bits, const uint8_t* in, uint8_t* out) {
  if (bits % 8 == 0) {
    const size_t bytes = bits / 8;
    for (size_t i = 0; i < n; ++i) std::memcpy(out + i * bytes, in + source.of(i) * bytes, bytes);
    return;
  }
  std::memset(out, 0, (n * bits + 7) / 8);
  for (size_t i = 0; i < n; ++i) {
    const size_t from = source.of(i) * bits, to = i * bits;
    for (size_t b = 0; b < bits; ++b) {
      const unsigned bit = in[(from + b) / 8] >> ((from + b) % 8) & 1u;
      out[(to + b) / 8] = static_cast<uint8_t>(out[(to + b) / 8] | bit << ((to + b) % 8));
    }
  }
}

class MoveTask : public Task {
 public:
  MoveTask(const Problem& problem, std::unique_ptr<Source> source)
      : source_(std::move(source)),
        in_(problem.root().in[0]),
        out_(problem.root().out[0]),
        elements_(problem.tensor(out_).elements()),
        storage_(problem.format(out_).storage) {
    // A sum is added to, in fp32, and is no copy of codes; nor is a tensor that was given another
    // format.
    if (problem.format(in_).storage == storage_ && problem.tensor(out_).kind != Kind::grad_sum) {
      bits_ = movable_bits(storage_);
    }
    if (bits_ != 0) return;
    Workspace workspace;
    reader_ = Reader(problem, in_);
    writer_ = Writer(problem, problem.root(), out_);
    in_space_ = workspace.book(reader_.space());
    out_space_ = workspace.book(elements_);
    workspace_ = workspace.bytes();
  }

  void run(const RunContext& context) override {
    if (bits_ != 0) {
      const StorageSize size = storage_size(storage_, elements_);
      const size_t side = aligned_bytes(size.code_bytes);
      move_codes(*source_, elements_, bits_, context.bytes(in_), context.bytes(out_));
      std::memcpy(context.bytes(out_) + side, context.bytes(in_) + side, 4 * size.side_words);
      return;
    }
    const float* in = reader_.all(context, floats(context, in_space_));
    float* out = floats(context, out_space_);
    for (size_t i = 0; i < elements_; ++i) out[i] = in[source_->of(i)];
    writer_.all(context, out);
  }

 private:
  const std::unique_ptr<Source> source_;
  const TensorId in_, out_;
  const size_t elements_;
  const Storage storage_;
  size_t bits_ = 0;  // of the codes that are moved; 0: values are
  Reader reader_;
  Writer writer_;
  size_t in_space_ = 0, out_space_ = 0;
};

template <typename From>
std::unique_ptr<Task> make_move(const Problem& problem) {
  return std::make_unique<MoveTask>(problem, std::make_unique<From>(problem));
}

void concat(const Call& call) {
  const JoinedRows whole = joined_rows(call.node, call.out_shape());
  const auto rows = static_cast<int64_t>(whole.count);
  int64_t begin = 0;
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const int64_t part = joined_rows(call.node, call.in_shape(k)).width;
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(call.in(k) + r * part, part, call.out() + r * whole.width + begin);
    begin += part;
  }
}

void split(const Call& call) {
  const JoinedRows whole = joined_rows(call.node, call.in_shape(0));
  const auto rows = static_cast<int64_t>(whole.count);
  int64_t begin = 0;
  for (size_t k = 0; k < call.outputs.size(); ++k) {
    const int64_t part = joined_rows(call.node, call.out_shape(k)).width;
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(call.in(0) + r * whole.width + begin, part, call.out(k) + r * part);
    begin += part;
  }
}

}  // namespace

std::span<const KernelDef> move_kernels() {
  static constexpr KernelDef kKernels[] = {
      {"channel_shuffle", "reference", takes_one_node, make_move<ShuffleSource>},
      {"transpose", "reference", takes_one_node, make_move<TransposeSource>},
      reference_kernel<concat>("concat"),
      reference_kernel<split>("split"),
  };
  return kKernels;
}

}  // namespace ulp::ref
