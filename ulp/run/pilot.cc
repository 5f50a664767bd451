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

Pilot::Pilot(const RunConfig& config, const LearningTask& task, const PilotOptions& options)
    : config_(all_high(config)), task_(task) {
  train_ = task.stream(Part::train);
  total_steps_ = ulp::total_steps(config_, train_->batches());
  EngineOptions engine = engine_options(config_, task);
  engine.keep_gradients = options.keep_gradients;
  policy_.candidates = engine.precision.candidates;
  policy_.keep_first_last = engine.precision.keep_first_last;
  engine_ = std::make_unique<Engine>(engine);
  for (const BatchShape& shape : task.training_shapes()) engine_->plan_training(shape);
  if (options.tests) {
    test_ = task.stream(Part::test);
    for (const BatchShape& shape : task.evaluation_shapes()) engine_->plan_evaluation(shape);
  }
  task.keep_data(*engine_);
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
    const FeedBatch& batch = train_->next();
    const double lr = rate(schedule_of(config_), base, step_, train_->batches(), total_steps_);
    const StepState state = step_state(config_, step_, updates_, lr, scaling.scale());
    const auto verdict = [&](double loss, const Graph& graph, std::span<const EncodeStats> stats) {
      return scaling.accept(gradients_overflowed(loss, graph, stats));
    };
    const StepResult result = engine_->train(state, batch, verdict, known_of(scaling));
    updates_ += result.updated ? 1 : 0;
    if (scaling.stuck()) return false;
  }
  return true;
}

double Pilot::score() {
  test_->seek(0, 0);
  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(step_);
  const std::unique_ptr<Meter> meter = task_.meter();
  for (uint64_t i = 0; i < test_->batches(); ++i) {
    const FeedBatch& batch = test_->next();
    engine_->evaluate(state, batch, [&](const Outputs& outputs) { meter->add(outputs, batch); });
  }
  return meter->values().front();
}

}  // namespace ulp
