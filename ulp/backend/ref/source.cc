// Where data comes in: what the caller feeds is written in the tensor's format.
#include <cstring>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/base/error.h"

namespace ulp::ref {
namespace {

class FeedTask : public Task {
 public:
  explicit FeedTask(const Problem& problem)
      : node_(problem.root()), out_(node_.out[0]), tensor_(problem.tensor(out_)) {
    if (tensor_.element == Element::real) writer_ = Writer(problem, node_, out_);
  }

  void run(const RunContext& context) override {
    const void* feed = context.feeds[static_cast<size_t>(out_.index)];
    if (feed == nullptr) fail("backend", "nothing is fed to '{}'", node_.name);
    if (tensor_.element == Element::real) {
      writer_.all(context, static_cast<const float*>(feed));
    } else {
      std::memcpy(context.bytes(out_), feed, tensor_.elements() * sizeof(int32_t));
    }
  }

 private:
  const Node& node_;
  const TensorId out_;
  const TensorInfo& tensor_;
  Writer writer_;
};

constexpr KernelDef feed(std::string_view op) {
  return {op, "reference", takes_one_node, make_one<FeedTask>};
}

}  // namespace

std::span<const KernelDef> source_kernels() {
  static constexpr KernelDef kKernels[] = {feed("input"), feed("indices"), feed("target")};
  return kKernels;
}

}  // namespace ulp::ref
