#include "ulp/run/pilot.h"

#include <algorithm>
#include <limits>

#include "ulp/optim/schedule.h"
#include "ulp/precision/demote.h"
#include "ulp/run/scaling.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

// A policy of groups that demotes none of them.
constexpr const char* kAllHigh = "size:0";

RunConfig all_high(RunConfig config) {
  config.policy = kAllHigh;
  // Gradients are looked at, and steps thrown away.
  config.fused_backward = false;
  config.fused_overflow = RunConfig{}.fused_overflow;
  check(config);
  return config;
}

}  // namespace

Pilot::Pilot(const RunConfig& config, const ImageSet& set, const PilotOptions& options)
    : config_(all_high(config)) {
  train_ = std::make_unique<Loader>(set, Part::train, loader_options(config_, Part::train));
  total_steps_ = ulp::total_steps(config_, train_->batches());
  EngineOptions engine = engine_options(config_, set);
  engine.keep_gradients = options.keep_gradients;
  policy_.candidates = engine.precision.candidates;
  policy_.keep_first_last = engine.precision.keep_first_last;
  engine_ = std::make_unique<Engine>(engine);
  engine_->plan_training(last_batch(train_->examples(), config_.batch));
  if (options.tests) {
    test_ = std::make_unique<Loader>(set, Part::test, loader_options(config_, Part::test));
    const int64_t batch =
        std::min(config_.batch / config_.grad_accum, static_cast<int64_t>(test_->examples()));
    engine_->plan_evaluation(batch);
    engine_->plan_evaluation(last_batch(test_->examples(), batch));
  }
  engine_->allocate();
}

size_t Pilot::groups() const { return group_elements(engine_->counted()).size(); }

Assignment Pilot::low(const std::vector<int>& groups) const {
  Assignment assignment = demote_groups(engine_->graph(), engine_->counted(), groups, policy_);
  apply_overrides(precision_options(config_).overrides, engine_->counted(), policy_.candidates, assignment);
  return assignment;
}

LossScaler& Pilot::scaler() {
  // Which one it is depends on the formats, and they may be changed before the first step.
  if (!scaler_) {
    scaler_ = std::make_unique<LossScaler>(choose_loss_scale(config_, *engine_), train_->batches());
    if (scaler_->measured()) {
      scaler_->set(measure_loss_scale(*engine_, *train_, config_.seed));
      train_->seek(static_cast<uint32_t>(step_ / train_->batches()), step_ % train_->batches());
    }
  }
  return *scaler_;
}

bool Pilot::train(uint64_t steps) {
  const double base = optimizer_config(config_).lr;
  LossScaler& scaling = scaler();
  for (const uint64_t end = step_ + steps; step_ < end; ++step_) {
    const Batch& batch = train_->next();
    const double lr = rate(schedule_of(config_), base, step_, train_->batches(), total_steps_);
    const StepState state = step_state(config_, step_, updates_, lr, scaling.scale());
    const auto verdict = [&](double loss, const Graph& graph, std::span<const EncodeStats> stats) {
      return scaling.accept(gradients_overflowed(loss, graph, stats));
    };
    const BatchResult result = engine_->train(state, examples_of(batch), verdict, known_of(scaling));
    updates_ += result.updated ? 1 : 0;
    if (scaling.stuck()) return false;
  }
  return true;
}

double Pilot::accuracy() {
  test_->seek(0, 0);
  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(step_);
  uint64_t correct = 0;
  for (uint64_t i = 0; i < test_->batches(); ++i) {
    const Batch& batch = test_->next();
    correct += engine_->evaluate(state, examples_of(batch)).correct;
  }
  return static_cast<double>(correct) / static_cast<double>(test_->examples());
}

}  // namespace ulp
