// A run without a folder: the steps that a configuration would train, in memory, under any choice of groups. For those who
// try things out before a run or beside one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ulp/data/dataset.h"
#include "ulp/data/loader.h"
#include "ulp/precision/loss_scale.h"
#include "ulp/precision/policy.h"
#include "ulp/run/config.h"
#include "ulp/session/engine.h"

namespace ulp {

struct PilotOptions {
  bool keep_gradients = false;  // for Engine::gradient
  bool tests = false;           // plan for accuracy()
};

class Pilot {
 public:
  // With every group high, whatever the configuration's policy. The set must outlive it. Throws an Error for a configuration
  // that cannot be followed.
  Pilot(const RunConfig& config, const ImageSet& set, const PilotOptions& options);

  Engine& engine() { return *engine_; }
  const PolicyOptions& policy_options() const { return policy_; }
  // These groups low, the others high, and single tensors as the configuration says.
  Assignment low(const std::vector<int>& groups) const;
  size_t groups() const;

  // The run's next steps, with its schedule and its loss scale. Nothing is promoted. False, and earlier, where the loss scale
  // is stuck: a run would end there.
  bool train(uint64_t steps);
  uint64_t total_steps() const { return total_steps_; }  // of the configuration
  uint64_t step() const { return step_; }                // that comes next
  // What train would use now.
  LossScaler& scaler();
  Loader& loader() { return *train_; }
  const RunConfig& config() const { return config_; }

  // Of the test set, in the formats of the engine.
  double accuracy();

 private:
  const RunConfig config_;
  PolicyOptions policy_;
  std::unique_ptr<Loader> train_, test_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<LossScaler> scaler_;
  uint64_t total_steps_ = 0, step_ = 0, updates_ = 0;
};

}  // namespace ulp
