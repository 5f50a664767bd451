// One training step as a configuration says: scalars of the update, loss scale, what overflowed and
// what is promoted for it. What stands between steps (data, epochs, files) belongs to the caller,
// and so does where training stands.
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
  // Of the last step, whose loss was not finite: which tensor was first, as a clause. The batch must
  // be that step's, and no format may have changed since.
  std::string first_not_finite(const FeedBatch& batch);
  // Of the tensors of the last step, those that must be promoted; none where promotion is off.
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
  // Of the last step, as first_not_finite needs it: the weights of before, if they changed.
  StepState last_;
  bool updated_ = false;
  std::optional<StateCopy> before_;
};

}  // namespace ulp
