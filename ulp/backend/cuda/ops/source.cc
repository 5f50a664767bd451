// Tasks for data that the caller feeds: encodes it from device memory into the tensor's format, and
// makes batches from data that stays there.
#include "ulp/backend/cuda/access/copy.h"
#include "ulp/backend/cuda/access/decode_around.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/ops/batch.h"
#include "ulp/base/error.h"
#include "ulp/graph/ops/batch.h"

namespace ulp::cuda {
namespace {

const void* feed_of(const RunContext& context, const Node& node) {
  const void* feed = context.feeds[static_cast<size_t>(node.out[0].index)];
  if (feed == nullptr) fail("backend", "nothing is fed to '{}'", node.name);
  return feed;
}

class FeedTask : public Task {
 public:
  explicit FeedTask(const Problem& problem) : node_(problem.root()), out_(node_.out[0]) {
    const TensorInfo& tensor = problem.tensor(out_);
    elements_ = tensor.elements();
    element_ = tensor.element;
    if (element_ == Element::real) result_ = Result(problem, node_, out_);
    workspace_ = convert_bytes(problem);
  }

  void run(const RunContext& context) override {
    const void* feed = feed_of(context, node_);
    if (result_) {
      encode(result_->view(context), context.state, Rows::all(elements_), static_cast<const float*>(feed),
             context.workspace, context.stream);
    } else if (element_ == Element::byte) {
      copy_bytes(context.bytes(out_), static_cast<const uint8_t*>(feed), elements_, context.stream);
    } else {
      copy_words(context.as<uint32_t>(out_), static_cast<const uint32_t*>(feed), elements_, context.stream);
    }
  }

 private:
  const Node& node_;
  const TensorId out_;
  size_t elements_;
  Element element_;
  std::optional<Result> result_;
};

class ImageBatchTask : public DecodeAroundTask {
 public:
  explicit ImageBatchTask(const Problem& problem) : DecodeAroundTask(problem), node_(problem.root()) {
    const ImageBatchOptions options = image_batch_options(node_);
    call_.height = static_cast<int32_t>(options.height);
    call_.width = static_cast<int32_t>(options.width);
    call_.channels = static_cast<int32_t>(options.channels);
    call_.augment = options.augment;
    for (size_t c = 0; c < options.normalise.size(); ++c) call_.normalise[c] = options.normalise[c];
  }

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    ImageBatchCall call = call_;
    call.images = static_cast<const uint8_t*>(feed_of(context, node_));
    call.examples = views.indices(0);
    make_image_batch(call, views.out[0], context.state, context.stream);
  }

  const Node& node_;
  ImageBatchCall call_;
};

class FromBytesTask : public DecodeAroundTask {
 public:
  explicit FromBytesTask(const Problem& problem)
      : DecodeAroundTask(problem),
        normalise_{static_cast<float>(problem.root().attrs.real("shift")),
                   static_cast<float>(problem.root().attrs.real("scale"))} {}

 private:
  void launch_on(const RunContext& context, const Views& views) override {
    make_from_bytes(views.in[0].codes, normalise_, views.out[0], context.state, context.stream);
  }

  const Normalise normalise_;
};

// Takes rows of int32 or fp32, both words of four bytes.
class TakeTask : public Task {
 public:
  explicit TakeTask(const Problem& problem)
      : node_(problem.root()),
        count_(static_cast<uint64_t>(problem.shape(node_.out[0])[0])),
        width_(problem.tensor(node_.out[0]).elements() / count_) {}

  void run(const RunContext& context) override {
    take_rows(static_cast<const uint32_t*>(feed_of(context, node_)), context.as<int32_t>(node_.in[0]), count_,
              width_, context.as<uint32_t>(node_.out[0]), context.stream);
  }

 private:
  const Node& node_;
  const uint64_t count_, width_;
};

template <typename Made>
constexpr KernelDef kernel(std::string_view op, std::string_view name) {
  return {op, name, takes_one_node, make_one<Made>};
}

}  // namespace

std::span<const KernelDef> source_kernels() {
  static constexpr KernelDef kKernels[] = {
      kernel<FeedTask>("input", "feed"),
      kernel<FeedTask>("indices", "feed"),
      kernel<FeedTask>("target", "feed"),
      kernel<FeedTask>("bytes", "feed"),
      kernel<FromBytesTask>("from_bytes", "normalise"),
      kernel<ImageBatchTask>("image_batch", "resident"),
      kernel<TakeTask>("take", "resident"),
      kernel<TakeTask>("take_target", "resident"),
  };
  return kKernels;
}

}  // namespace ulp::cuda
