#include "ulp/session/profile.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/graph/ops/source.h"
#include "ulp/graph/ops/update.h"
#include "ulp/graph/products.h"

namespace ulp {
namespace {

bool once_a_step(Phase phase) { return phase != Phase::forward && phase != Phase::backward; }
bool is_recomputed(Phase phase) { return phase == Phase::recompute || phase == Phase::recompute_finish; }

double median_seconds(const std::vector<KernelTime>& times) {
  std::vector<double> seconds;
  for (const KernelTime& time : times) seconds.push_back(time.seconds);
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

// Stops the timing of an engine's steps on every exit.
class Timed {
 public:
  Timed(Engine& engine, PlanClock& clock) : engine_(engine) { engine_.time_plan(&clock); }
  ~Timed() { engine_.time_plan(nullptr); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Engine& engine_;
};

// The step after this one if they are merged; else null.
const PlanStep* merged_with(const Plan& plan, const PlanStep& step) {
  return step.merged_task == nullptr ? nullptr
                                     : &plan.steps()[static_cast<size_t>(&step - plan.steps().data()) + 1];
}

}  // namespace

// The share of a tensor that a node reads or writes: a look-up and an update by rows touch as many
// elements of a table as they make or have gradients.
double touched_share(const Graph& graph, const Node& node, TensorId id) {
  const bool by_rows = node.op == &kUpdate && graph[node.in[0]].rows;
  const bool looks_up = node.op == &kEmbedding && id == node.in[0];
  if (!looks_up && !(by_rows && is_state(graph[id].kind))) return 1;
  const TensorId rows = looks_up ? node.out[0] : node.in[0];
  return std::min(1.0,
                  static_cast<double>(graph[rows].elements()) / static_cast<double>(graph[id].elements()));
}

size_t moved_bytes(const Plan& plan, const PlanStep& step) {
  if (step.merged) return 0;
  const Graph& graph = plan.graph();
  std::map<int32_t, double> read, written;  // by tensor: what share of it
  double bytes = 0;
  std::vector<NodeId> roots = step.roots, nodes = step.inlined;
  if (const PlanStep* other = merged_with(plan, step)) {
    roots.insert(roots.end(), other->roots.begin(), other->roots.end());
    nodes.insert(nodes.end(), other->inlined.begin(), other->inlined.end());
  }
  nodes.insert(nodes.end(), roots.begin(), roots.end());
  const auto made_here = [&](TensorId id) {
    const NodeId producer = graph[id].producer;
    return std::find(roots.begin(), roots.end(), producer) != roots.end();
  };
  for (const NodeId id : nodes) {
    for (const TensorId in : graph[id].in) {
      if (plan.place(in).home == Home::nowhere || made_here(in)) continue;
      double& share = read[plan.place(in).base.index];
      share = std::max(share, touched_share(graph, graph[id], in));
    }
    // Fed values arrive in four bytes, whatever their storage.
    if (is_source(graph[id])) bytes += 4 * static_cast<double>(graph[graph[id].out[0]].elements());
  }
  for (const NodeId id : roots) {
    for (const TensorId out : graph[id].out) {
      if (plan.place(out).home == Home::nowhere) continue;
      const double share = touched_share(graph, graph[id], out);
      written[plan.place(out).base.index] = share;
      if (is_state(graph[out].kind)) read[plan.place(out).base.index] = share;
    }
  }
  for (const auto* set : {&read, &written}) {
    for (const auto& [index, share] : *set)
      bytes += share * static_cast<double>(plan.place(TensorId{index}).bytes);
  }
  return static_cast<size_t>(bytes);
}

double product_operations(const Plan& plan, const PlanStep& step) {
  uint64_t pairs = 0;
  for (const auto* nodes : {&step.roots, &step.inlined}) {
    for (const NodeId id : *nodes) pairs += multiply_adds(plan.graph(), plan.graph()[id]);
  }
  return 2 * static_cast<double>(pairs);
}

std::string product_formats(const Plan& plan, const PlanStep& step) {
  const Graph& graph = plan.graph();
  const Node& node = graph[step.roots[0]];
  if (multiply_adds(graph, node) == 0 || node.in.size() < 2) return "";
  const auto name = [&](TensorId id) {
    const TensorFormat& format = plan.formats()[static_cast<size_t>(id.index)];
    return storage_name(format.operand.value_or(format.storage));
  };
  return name(node.in[0]) + " x " + name(node.in[1]);
}

StepWork step_work(const Plan& plan, int64_t micro_batches) {
  StepWork work;
  for (const PlanStep& step : plan.steps()) {
    const double runs = once_a_step(step.phase) ? 1 : static_cast<double>(micro_batches);
    work.bytes += runs * static_cast<double>(moved_bytes(plan, step));
    if (!is_recomputed(step.phase)) work.operations += runs * product_operations(plan, step);
  }
  return work;
}

std::vector<KernelTime> profile_steps(Engine& engine, PlanClock& clock, int64_t count,
                                      const std::function<void()>& train) {
  if (count < 1) fail("profile", "the number of steps must be positive, got {}", count);
  const Plan& plan = engine.training_plan();
  using Key = std::tuple<std::string, std::string_view, std::string>;
  // By step in which it ran; a skipped one updates nothing.
  std::map<Key, std::vector<KernelTime>> found;
  const Timed timed(engine, clock);
  clock.take();
  for (int64_t i = 0; i < count; ++i) {
    train();
    const std::vector<PlanStepTime> times = clock.take();
    std::map<Key, KernelTime> now;
    for (size_t at = 0; at < std::min(times.size(), plan.steps().size()); ++at) {
      if (times[at].runs == 0) continue;
      const PlanStep& step = plan.steps()[at];
      const auto runs = static_cast<double>(times[at].runs);
      std::string op(plan.graph()[step.roots[0]].op->name);
      if (const PlanStep* other = merged_with(plan, step))
        op.append("+").append(plan.graph()[other->roots[0]].op->name);
      KernelTime& kernel = now[{op, step.kernel->name, product_formats(plan, step)}];
      kernel.seconds += times[at].seconds;
      kernel.calls += times[at].runs;
      kernel.bytes += runs * static_cast<double>(moved_bytes(plan, step));
      kernel.operations += runs * product_operations(plan, step);
    }
    for (const auto& [key, kernel] : now) found[key].push_back(kernel);
  }
  std::vector<KernelTime> kernels;
  for (const auto& [key, times] : found) {
    KernelTime& kernel = kernels.emplace_back(times.front());
    std::tie(kernel.op, kernel.kernel, kernel.formats) = key;
    kernel.seconds = median_seconds(times);
  }
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  return kernels;
}

void HostClock::begin(size_t step, CUstream_st* /*stream*/) {
  if (step >= times_.size()) times_.resize(step + 1);
  begun_ = std::chrono::steady_clock::now();
}

void HostClock::end(size_t step, CUstream_st* /*stream*/) {
  times_[step].seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  ++times_[step].runs;
}

std::vector<PlanStepTime> HostClock::take() { return std::exchange(times_, {}); }

}  // namespace ulp
