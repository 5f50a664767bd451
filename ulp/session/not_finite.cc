#include <algorithm>
#include <cmath>

#include "ulp/precision/assignment.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

// What a look at numbers finds; none where all are finite.
std::optional<Engine::NotFinite> look(const TensorInfo& tensor, const std::vector<float>& values) {
  Engine::NotFinite found{tensor.name, tensor.kind};
  for (const float value : values) {
    found.nan += std::isnan(value) ? 1 : 0;
    found.infinite += std::isinf(value) ? 1 : 0;
  }
  found.elements = values.size();
  if (found.nan == 0 && found.infinite == 0) return std::nullopt;
  return found;
}

// What the writing of a narrow tensor reported: its codes may have no NaN and no infinity.
std::optional<Engine::NotFinite> reported(const TensorInfo& tensor, const EncodeStats& stats) {
  if (stats.nan == 0 && std::isfinite(stats.amax)) return std::nullopt;
  return Engine::NotFinite{tensor.name, tensor.kind, stats.nan, std::isinf(stats.amax) ? 1u : 0u};
}

// Looks at what each step of a plan has written, as soon as it is written: later steps may reuse the memory.
class Watch : public PlanClock {
 public:
  Watch(const Plan& plan, Executor& executor) : plan_(plan), executor_(executor) {
    executor_.time_plan(this);
  }
  ~Watch() override { executor_.time_plan(nullptr); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void begin(size_t, CUstream_st*) override {}
  void end(size_t number, CUstream_st*) override {
    const PlanStep& step = plan_.steps()[number];
    look_at(step);
    if (step.merged_task != nullptr) look_at(plan_.steps()[number + 1]);
  }
  std::vector<PlanStepTime> take() override { return {}; }

  const std::optional<Engine::NotFinite>& found() const { return found_; }

 private:
  void look_at(const PlanStep& step) {
    const Graph& graph = plan_.graph();
    for (const NodeId root : step.roots) {
      for (const TensorId id : graph[root].out) {
        const TensorInfo& tensor = graph[id];
        // Forward in training reads no running statistics.
        if (found_ || tensor.element != Element::real || tensor.kind == Kind::statistic) continue;
        found_ = reported(tensor, executor_.stats()[static_cast<size_t>(id.index)]);
        if (!found_ && plan_.place(id).home != Home::nowhere) found_ = look(tensor, executor_.values(id));
      }
    }
  }

  const Plan& plan_;
  Executor& executor_;
  std::optional<Engine::NotFinite> found_;
};

}  // namespace

bool Engine::can_look() const { return device_of(backend_).on_host(); }

bool Engine::asks_before_updates() const {
  return can_look() && (!options_.fused_backward || makes_gradients_twice());
}

std::optional<Engine::NotFinite> Engine::find_not_finite(const StepState& step, const FeedBatch& batch) {
  if (!can_look()) return std::nullopt;
  for (const TensorInfo& tensor : graph().tensors()) {
    if (tensor.kind != Kind::weight) continue;
    if (auto found = look(tensor, state_->find(tensor.name).values())) return found;
  }
  const int64_t total = batch.shape.examples, whole = std::min(piece().examples, total);
  StepState state = step;
  state.skip = 0;
  state.epoch = batch.epoch;
  for (int64_t first = 0; first < total; first += whole, ++state.micro_batch) {
    Program& program = find_program(training_, batch.shape.of(std::min(whole, total - first)), "training");
    feed(program, batch, first);
    const Watch watch(*program.plan, *program.executor);
    program.executor->clear_stats();
    program.executor->run(state, Phase::forward, Phase::forward);
    if (watch.found()) return watch.found();
  }
  return std::nullopt;
}

std::optional<Engine::NotFinite> Engine::reported_not_finite() const {
  for (const Node& node : graph().nodes()) {
    if (node.phase != Phase::forward) continue;
    for (const TensorId id : node.out) {
      if (graph()[id].kind != Kind::activation) continue;
      if (auto found = reported(graph()[id], stats_[static_cast<size_t>(id.index)])) return found;
    }
  }
  return std::nullopt;
}

}  // namespace ulp
