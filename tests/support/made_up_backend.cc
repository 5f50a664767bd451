#include "tests/support/made_up_backend.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ulp::harness {
namespace {

// Kernels are plain functions: whose traits they look at while a plan is made.
const BackendTraits* current = nullptr;

class MadeUpTask : public Task {
 public:
  MadeUpTask(const Traits& traits) : Task(traits.workspace + traits.prepared), traits_(traits) {}
  size_t prepared() const override { return traits_.prepared; }
  std::vector<TensorId> reads_range_of() const override { return traits_.reads_range; }
  void run(const RunContext&) override {}
  const Traits& traits() const { return traits_; }

 private:
  Traits traits_;
};

template <bool in_place, bool side_stream>
std::string why_not(const Problem& problem) {
  const Traits traits = current->of(problem);
  if (traits.in_place != in_place || traits.side_stream != side_stream) return "it has other traits";
  if (traits.declines) return "it declines";
  return traits.takes_inlined || problem.inlined.empty() ? "" : "it takes no inlined nodes";
}

std::unique_ptr<Task> make(const Problem& problem) {
  return std::make_unique<MadeUpTask>(current->of(problem));
}

std::unique_ptr<Task> make_preparation(std::span<Task* const>) {
  return std::make_unique<MadeUpTask>(Traits{});
}

std::unique_ptr<Task> make_merged(Task& first, Task& second) {
  const Traits &a = static_cast<MadeUpTask&>(first).traits(), &b = static_cast<MadeUpTask&>(second).traits();
  if (!a.begins_pair || !b.ends_pair) return nullptr;
  Traits traits;
  traits.workspace = a.pair_workspace;
  return std::make_unique<MadeUpTask>(traits);
}

}  // namespace

std::function<Traits(const Problem& problem)> traits_by_name(std::vector<std::pair<std::string, Traits>> list,
                                                             Traits others) {
  return [list = std::move(list), others](const Problem& problem) {
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const auto& one) { return one.first == problem.root().name; });
    return found == list.end() ? others : found->second;
  };
}

MadeUpPlan::MadeUpPlan(const Graph& graph, const BackendTraits& traits, PlanOptions options,
                       std::vector<TensorFormat> formats)
    : backend_(std::make_unique<Backend>()) {
  backend_->name = "made up";
  std::set<std::string_view> ops;
  for (const Node& node : graph.nodes()) ops.insert(node.op->name);
  for (const std::string_view op : ops) {
    backend_->kernels.push_back({op, "plain", why_not<false, false>, make});
    backend_->kernels.push_back({op, "in place", why_not<true, false>, make, true});
    backend_->kernels.push_back({op, "beside", why_not<false, true>, make, false, true});
    backend_->kernels.push_back({op, "both", why_not<true, true>, make, true, true});
  }
  backend_->fuses = traits.fuses;
  backend_->merges = traits.merges;
  if (traits.prepares) backend_->make_preparation = make_preparation;
  if (traits.pairs) backend_->make_merged = make_merged;
  options.backend = backend_.get();
  if (formats.empty()) formats.assign(graph.tensor_count(), {parse_storage("fp32"), {}});
  current = &traits;
  plan_ = std::make_unique<Plan>(graph, std::move(formats), options);
  current = nullptr;
}

}  // namespace ulp::harness
