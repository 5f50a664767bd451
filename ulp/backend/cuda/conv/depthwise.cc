// Tasks for depthwise.h. Tensors that cannot be read or written by vectors (odd widths, split
// storage, S2FP8 results) go through fp32 in the workspace.
#include "ulp/backend/cuda/conv/depthwise.h"

#include <algorithm>
#include <limits>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/kernels.h"

namespace ulp::cuda {
namespace {

ConvExtents extents(const Problem& problem) { return conv_extents(problem.graph(), problem.root()); }

std::string why_not(const Problem& problem) {
  if (std::string reason = takes_one_node(problem); !reason.empty()) return reason;
  if (problem.plan.options.accumulator) return "it adds up in fp32 alone";
  const ConvExtents conv = extents(problem);
  if (!conv.is_depthwise()) return "its groups are not single channels";
  if (conv.kernel_h > kDepthwiseKernel || conv.kernel_w > kDepthwiseKernel)
    return "its kernel is larger than 7x7";
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  const auto images = static_cast<uint64_t>(conv.n);
  if (std::max({conv.pixels(), conv.out_pixels(), conv.x_elements() / images, conv.out_elements() / images}) >
      kMost)
    return "it has too many pixels";
  return "";
}

// A tensor that a kernel reads: its codes, or a decoded copy.
class Source {
 public:
  Source(const Problem& problem, TensorId id, Workspace& book) : operand_(problem, id) {
    const TensorFormat format = read_format(problem, id);
    const StoredView view = stored_view(format.storage, Overflow::saturate, operand_.elements());
    const bool rounds = format.operand && !is_fp32(*format.operand);
    in_place_ = !rounds && reads_by_vectors(view);
    if (!in_place_) space_ = book.book(operand_.elements());
  }

  StoredView view(const RunContext& context, void* convert_space) const {
    if (in_place_) return operand_.view(context).stored;
    return fp32_view(operand_, context, floats(context, space_), convert_space);
  }
  static StoredView fp32_view(const Operand& operand, const RunContext& context, float* space,
                              void* convert_space) {
    StoredView view;
    view.elements = operand.elements();
    // Kernels only read through this view.
    view.codes = reinterpret_cast<uint8_t*>(const_cast<float*>(operand.all(context, space, convert_space)));
    return view;
  }

 private:
  Operand operand_;
  bool in_place_;
  size_t space_ = 0;
};

// Weights and biases in any storage; decoded first only if rounding needs a pass over the whole
// tensor.
class Taps {
 public:
  Taps(const Problem& problem, TensorId id, Workspace& book) : operand_(problem, id) {
    if (!operand_.in_groups()) space_ = book.book(operand_.elements());
  }
  ReadView view(const RunContext& context, void* convert_space) const {
    if (operand_.in_groups()) return operand_.view(context);
    ReadView view;
    view.stored = Source::fp32_view(operand_, context, floats(context, space_), convert_space);
    return view;
  }

 private:
  Operand operand_;
  size_t space_ = 0;
};

// The image or gradient that is written: as codes, or as fp32 that is encoded afterwards.
class Sink {
 public:
  Sink(const Problem& problem, Workspace& book) : result_(problem, problem.root(), problem.root().out[0]) {
    in_place_ = result_.by_vectors();
    if (!in_place_) space_ = book.book(result_.space());
  }
  WriteView view(const RunContext& context) const {
    if (in_place_) return result_.view(context);
    WriteView view;
    view.stored.elements = result_.elements();
    view.stored.codes = reinterpret_cast<uint8_t*>(result_.target(context, floats(context, space_)));
    return view;
  }
  void finish(const RunContext& context, void* convert_space) const {
    if (!in_place_) result_.write(context, floats(context, space_), convert_space);
  }

 private:
  Result result_;
  bool in_place_;
  size_t space_ = 0;
};

// Forward, and the gradient of images.
template <bool forward>
class ImageTask : public Task {
 public:
  explicit ImageTask(const Problem& problem)
      : conv_(extents(problem).as<uint32_t>()),
        convert_(book_.book(1, convert_bytes(problem))),
        source_(problem, problem.root().in[0], book_),
        weight_(problem, problem.root().in[1], book_),
        sink_(problem, book_) {
    if (forward && problem.root().in.size() > 2) bias_.emplace(problem, problem.root().in[2], book_);
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    void* convert = context.workspace + convert_;
    const StoredView source = source_.view(context, convert);
    const ReadView weight = weight_.view(context, convert);
    if constexpr (forward) {
      ReadView bias;
      if (bias_) bias = bias_->view(context, convert);
      depthwise_forward(conv_, context.state, source, weight, bias_ ? &bias : nullptr, sink_.view(context),
                        context.stream);
    } else {
      depthwise_grad_input(conv_, context.state, source, weight, sink_.view(context), context.stream);
    }
    sink_.finish(context, convert);
  }

 private:
  const ConvExtents32 conv_;
  Workspace book_;
  size_t convert_;
  Source source_;
  Taps weight_;
  std::optional<Taps> bias_;
  Sink sink_;
};

class WeightTask : public Task {
 public:
  explicit WeightTask(const Problem& problem)
      : conv_(extents(problem).as<uint32_t>()),
        convert_(book_.book(1, convert_bytes(problem))),
        x_(problem, problem.root().in[0], book_),
        dout_(problem, problem.root().in[1], book_),
        result_(problem, problem.root(), problem.root().out[0]),
        space_(book_.book(result_.space())),
        partials_(book_.book(depthwise_partials(conv_), sizeof(double))) {
    workspace_ = book_.bytes();
  }

  void run(const RunContext& context) override {
    void* convert = context.workspace + convert_;
    float* made = result_.target(context, floats(context, space_));
    depthwise_grad_weight(conv_, x_.view(context, convert), dout_.view(context, convert),
                          reinterpret_cast<double*>(context.workspace + partials_), made, context.stream);
    result_.write(context, made, convert);
  }

 private:
  const ConvExtents32 conv_;
  Workspace book_;
  size_t convert_;
  Source x_, dout_;
  Result result_;
  size_t space_, partials_;
};

template <typename Made>
constexpr KernelDef depthwise(std::string_view op) {
  return {op, "depthwise", why_not, make_one<Made>};
}

}  // namespace

std::span<const KernelDef> depthwise_kernels() {
  static constexpr KernelDef kKernels[] = {
      depthwise<ImageTask<true>>("conv2d"),
      depthwise<ImageTask<false>>("conv2d_grad_input"),
      depthwise<WeightTask>("conv2d_grad_weight"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
