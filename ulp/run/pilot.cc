#include "ulp/run/pilot.h"

#include <algorithm>
#include <limits>

#include "ulp/optim/schedule.h"
#include "ulp/precision/demote.h"
#include "ulp/run/export.h"
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
    for (const BatchShape& shape : task.evaluation_shapes())
      engine_->plan_evaluation(shape, task.evaluates_fp32());
  }
  task.keep_data(*engine_);
  engine_->allocate();
  if (!config.init.empty()) init_weights(*engine_, config.init, config.seed);
}

size_t Pilot::groups() const { return group_elements(engine_->counted()).size(); }

Assignment Pilot::low(const std::vector<int>& groups) const {
  Assignment assignment = demote_groups(engine_->graph(), engine_->counted(), groups, policy_);
  apply_overrides(precision_options(config_).overrides, engine_->counted(), policy_.candidates, assignment);
  return assignment;
}

Stepper& Pilot::stepper() {
  // Which loss scale it has depends on the formats, and they may be changed before the first step.
  if (!stepper_) {
    stepper_ = std::make_unique<Stepper>(config_, *engine_, train_->batches());
    stepper_->measure_scale(*train_);
    if (stepper_->scaler().measured())
      train_->seek(static_cast<uint32_t>(progress_.step / train_->batches()),
                   progress_.step % train_->batches());
  }
  return *stepper_;
}

bool Pilot::train(uint64_t steps) {
  const double base = optimizer_config(config_).lr;
  for (const uint64_t end = progress_.step + steps; progress_.step < end;) {
    const FeedBatch& batch = train_->next();
    const double lr = rate(schedule_of(config_), base, progress_.step, train_->batches(), total_steps_);
    stepper().train(batch, lr, progress_);
    if (scaler().stuck()) return false;
  }
  return true;
}

double Pilot::score() {
  test_->seek(0, 0);
  StepState state;
  state.seed = config_.seed;
  state.step = static_cast<uint32_t>(progress_.step);
  const std::unique_ptr<Meter> meter = task_.meter();
  for (uint64_t i = 0; i < test_->batches(); ++i) {
    const FeedBatch& batch = test_->next();
    engine_->evaluate(state, batch, [&](const Outputs& outputs) { meter->add(outputs, batch); });
  }
  return meter->values().front();
}

}  // namespace ulp
