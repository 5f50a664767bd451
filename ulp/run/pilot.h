// A run without a folder: the steps that a configuration would train, in memory, under any choice
// of groups. For those who try things out before a run or beside one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ulp/precision/policy.h"
#include "ulp/run/config.h"
#include "ulp/run/stepper.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {

struct PilotOptions {
  bool keep_gradients = false;  // for Engine::gradient
  bool tests = false;           // plan for score()
};

class Pilot {
 public:
  // With every group high, whatever the configuration's policy. The task must outlive it. Throws an
  // Error for a configuration that cannot be followed.
  Pilot(const RunConfig& config, const LearningTask& task, const PilotOptions& options);

  Engine& engine() { return *engine_; }
  const PolicyOptions& policy_options() const { return policy_; }
  // These groups low, the others high, and single tensors as the configuration says.
  Assignment low(const std::vector<int>& groups) const;
  size_t groups() const;

  // The run's next steps, with its schedule and its loss scale. Nothing is promoted. False, and
  // earlier, where the loss scale is stuck: a run would end there.
  bool train(uint64_t steps);
  uint64_t total_steps() const { return total_steps_; }  // of the configuration
  uint64_t step() const { return progress_.step; }       // that comes next
  // The loss scaler and the batches that train would use now.
  LossScaler& scaler() { return stepper().scaler(); }
  BatchStream& batches() { return *train_; }
  const RunConfig& config() const { return config_; }

  // The task's first metric over the test set, in the formats of the engine.
  double score();

 private:
  Stepper& stepper();

  const RunConfig config_;
  PolicyOptions policy_;
  const LearningTask& task_;
  std::unique_ptr<BatchStream> train_, test_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Stepper> stepper_;
  uint64_t total_steps_ = 0;
  StepProgress progress_;
};

}  // namespace ulp
