// Tasks for data that the caller feeds: encodes it from device memory into the tensor's format.
#include "ulp/backend/cuda/access/copy.h"
#include "ulp/backend/cuda/access/operands.h"
#include "ulp/backend/cuda/kernels.h"
#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

class FeedTask : public Task {
 public:
  explicit FeedTask(const Problem& problem) : node_(problem.root()), out_(node_.out[0]) {
    elements_ = problem.tensor(out_).elements();
    if (problem.tensor(out_).element == Element::real) result_ = Result(problem, node_, out_);
    workspace_ = kConvertSpace;
  }

  void run(const RunContext& context) override {
    const void* feed = context.feeds[static_cast<size_t>(out_.index)];
    if (feed == nullptr) fail("backend", "nothing is fed to '{}'", node_.name);
    if (result_) {
      encode(result_->view(context), context.state, Rows::all(elements_), static_cast<const float*>(feed),
             context.workspace, context.stream);
    } else {
      copy_words(context.as<uint32_t>(out_), static_cast<const uint32_t*>(feed), elements_, context.stream);
    }
  }

 private:
  const Node& node_;
  const TensorId out_;
  size_t elements_;
  std::optional<Result> result_;
};

constexpr KernelDef feed(std::string_view op) { return {op, "feed", takes_one_node, make_one<FeedTask>}; }

}  // namespace

std::span<const KernelDef> source_kernels() {
  static constexpr KernelDef kKernels[] = {feed("input"), feed("indices"), feed("target")};
  return kKernels;
}

}  // namespace ulp::cuda
