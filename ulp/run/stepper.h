// Runs one training step as a configuration says: scalars of the update, loss scale, overflows and
// the promotions that follow. Everything between steps (data, epochs, files) and the progress of
// training belong to the caller.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/precision/loss_scale.h"
#include "ulp/precision/promotion.h"
#include "ulp/run/checkpoint.h"
#include "ulp/run/config.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {

class Stepper {
 public:
  // The loss scale is chosen by the formats that the engine has now; `epoch_steps` is what it calls
  // an epoch. The engine must outlive the stepper.
  Stepper(const RunConfig& config, Engine& engine, uint64_t epoch_steps);

  // If the loss scale is to be measured, measures it on the stream's first batches. The stream must
  // be sought afterwards.
  void measure_scale(BatchStream& batches);

  // The step that comes next, and the progress after it. With `watch`, what first_not_finite needs
  // is kept if the loss is not finite: a copy of the weights in the memory of the host.
  StepResult train(const FeedBatch& batch, double lr, StepProgress& progress, const OutputReader& read = {},
                   bool watch = false);
  // Says, as a clause, which tensor was the first that was not finite in the last step, whose loss
  // was not finite. The batch must be that step's, and no format may have changed since.
  std::string first_not_finite(const FeedBatch& batch);
  // The tensors that must be promoted after the last step; none if promotion is off.
  std::vector<Promotion> overflowed() const;
  // Gives them their high formats. An exception leaves the progress as it was.
  void promote(std::span<const Promotion> promotions, StepProgress& progress);
  // Makes the state that goes with a checkpoint's progress: for load_checkpoint. Throws an Error if
  // the file promoted a tensor that is not low here.
  State& prepare(const StepProgress& progress, const std::string& file);
  // After it was loaded.
  void restore(const StepProgress& progress) { scaler_.restore(progress.loss_scale); }

  LossScaler& scaler() { return scaler_; }
  const LossScaler& scaler() const { return scaler_; }
  // Throws an Error if the loss scale has skipped too many steps in a row; `scale` is the last one's.
  void check_scale(double scale) const;

 private:
  const RunConfig config_;
  Engine& engine_;
  LossScaler scaler_;
  std::optional<double> promotion_;  // its threshold
  // The last step for first_not_finite: its state, and the weights before it if it changed them.
  StepState last_;
  bool updated_ = false;
  std::optional<StateCopy> before_;
};

}  // namespace ulp
