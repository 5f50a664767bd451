// How much the gradient suffers where groups are stored low: what the policy sensitivity:R goes by.
// On a few batches of the run, the gradient of all weights under a choice of groups is compared
// with the one where every group is high.
//
// The error is |g - g_high|^2 / |g_high|^2, squares summed over all weights, averaged over the
// batches. 0: no difference; about 1 and more: nothing is left of the gradient; infinite: it was
// not finite.
//
// Before that some steps are trained, with every group high. Where weights start, scores are all
// alike, biases are zero and so are the gradients of what lies behind a zero; a few steps on it is
// a network in training. More would cost more than they tell: the order of groups is what counts.
// They are the first steps of the run itself, so nothing but the configuration decides what is
// measured.
//
// One loss scale serves all choices, since gradients at different scales round differently: the run's at that
// moment, or where it is dynamic the largest below at which nothing overflows with all groups high.
// A group whose low format cannot hold its gradients at that scale shows it as error.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ulp/precision/sensitivities.h"
#include "ulp/run/config.h"
#include "ulp/run/pilot.h"

namespace ulp {

struct SensitivityOptions {
  int64_t batches = 4;  // to compare gradients on
  int64_t warmup = 20;  // steps before
};

// After each piece of work; may throw to put an end to it.
using SensitivityProgress = std::function<void(size_t done, size_t total)>;

class GradientErrors {
 public:
  // The task must outlive it. Throws an Error for a configuration or options that cannot be followed.
  GradientErrors(const RunConfig& config, const LearningTask& task, const SensitivityOptions& options);

  // The steps before, and the gradients to compare with; `progress` is told after each step and
  // each batch. To be called once, before all else. Throws an Error if there are no gradients to
  // compare with.
  void prepare(const std::function<void()>& progress = {});

  // With these groups low, all of them at once.
  double of(const std::vector<int>& groups);

  Pilot& pilot() { return pilot_; }
  double loss_scale() const { return scale_; }

 private:
  // A batch with arrays of its own.
  struct KeptBatch {
    FeedBatch batch;
    std::vector<std::vector<uint8_t>> arrays;
    std::vector<float> gradient;  // with every group high
  };

  void keep_batches();
  void choose_scale();
  // Whether it is free of overflow.
  bool compute(const KeptBatch& batch);
  std::vector<float> gradient();

  const SensitivityOptions options_;
  Pilot pilot_;
  double scale_ = 1;
  std::vector<KeptBatch> batches_;
  std::vector<std::string> weights_;  // that have a gradient
  StateCopy kept_weights_;            // where formats of weights follow the assignment
};

// Each group low by itself.
Sensitivities measure_sensitivities(const RunConfig& config, const LearningTask& task,
                                    const SensitivityOptions& options = {},
                                    const SensitivityProgress& progress = {});

}  // namespace ulp
