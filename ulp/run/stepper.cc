#include "ulp/run/stepper.h"

#include <cmath>
#include <string_view>

#include "ulp/backend/found_inf.h"
#include "ulp/base/error.h"
#include "ulp/run/scaling.h"
#include "ulp/run/setup.h"

namespace ulp {

Stepper::Stepper(const RunConfig& config, Engine& engine, uint64_t epoch_steps)
    : config_(config),
      engine_(engine),
      scaler_(choose_loss_scale(config, engine), epoch_steps),
      promotion_(promotion_of(config)) {}

void Stepper::measure_scale(BatchStream& batches) {
  if (scaler_.measured()) scaler_.set(measure_loss_scale(engine_, batches, config_.seed));
}

StepResult Stepper::train(const FeedBatch& batch, double lr, StepProgress& progress, const OutputReader& read,
                          bool watch) {
  const StepState state = step_state(config_, progress.step, progress.updates, lr, scaler_.scale());
  before_.reset();
  const auto verdict = [&](double loss, const Graph& graph, std::span<const EncodeStats> stats) {
    if (watch && !std::isfinite(loss) && engine_.asks_before_updates())
      before_ = engine_.state().copy(Kind::weight);
    return scaler_.accept(gradients_overflowed(loss, graph, stats));
  };
  const StepResult result = engine_.train(state, batch, verdict, known_of(scaler_), read);
  last_ = state;
  updated_ = result.updated;
  ++progress.step;
  progress.updates += result.updated ? 1 : 0;
  progress.loss_scale = scaler_.state();
  return result;
}

std::string Stepper::first_not_finite(const FeedBatch& batch) {
  constexpr std::string_view kBlind =
      "tensors in fp32 can be looked at on the CPU only, and not with fused backward";
  State& state = engine_.state();
  // A step that was skipped left the weights alone.
  if (!engine_.can_look() || (updated_ && !before_)) {
    const std::optional<Engine::NotFinite> found = engine_.reported_not_finite();
    if (!found) return fmt::format("which tensor was first is not known: {}", kBlind);
    return fmt::format("of the narrow tensors {} was the first that was not finite ({})", found->tensor,
                       kBlind);
  }
  const StateCopy statistics = state.copy(Kind::statistic), after = state.copy(Kind::weight);
  if (before_) state.restore(*before_);
  before_.reset();
  const std::optional<Engine::NotFinite> found = engine_.find_not_finite(last_, batch);
  state.restore(after);
  state.restore(statistics);
  if (!found) return "every tensor that is stored was finite, the loss itself was not";
  std::string count;
  if (found->elements > 0) {
    count =
        fmt::format(", {} NaN and {} infinite of {} numbers", found->nan, found->infinite, found->elements);
  }
  const bool weight = found->kind == Kind::weight;
  return fmt::format("the first tensor that was not finite is {}{}{}", found->tensor, count,
                     weight ? ", a weight that the step before has written" : "");
}

std::vector<Promotion> Stepper::overflowed() const {
  if (!promotion_) return {};
  return overflowing(engine_.graph(), engine_.stats(), engine_.elements(), *promotion_, engine_.assignment());
}

void Stepper::promote(std::span<const Promotion> promotions, StepProgress& progress) {
  if (promotions.empty()) return;
  Assignment assignment = engine_.assignment();
  for (const Promotion& promotion : promotions) assignment.promote(promotion.tensor);
  engine_.set_assignment(std::move(assignment));
  for (const Promotion& promotion : promotions) progress.promoted.push_back(promotion.tensor);
}

State& Stepper::prepare(const StepProgress& progress, const std::string& file) {
  Assignment assignment = engine_.assignment();
  for (const std::string& name : progress.promoted) {
    if (!assignment.promote(name))
      fail("checkpoint", "{} has promoted '{}', which is not low here", file, name);
  }
  if (!progress.promoted.empty()) engine_.set_assignment(std::move(assignment));
  return engine_.state();
}

void Stepper::check_scale(double scale) const {
  if (!scaler_.stuck()) return;
  fail("train",
       "the gradients of {} steps in a row overflowed, the last at a loss scale of {}: choose a lower "
       "--lr, a smaller --loss-scale, or formats with more range",
       LossScaler::kMaxSkips, scale);
}

}  // namespace ulp
