// How an optimizer is told to update nodes (ulp/graph/ops/update.h), and what it is told at each step.
#pragma once

#include "ulp/backend/step_state.h"
#include "ulp/base/device.h"
#include "ulp/graph/graph.h"
#include "ulp/optim/optimizer.h"

namespace ulp {

// The attributes of an update node, and the optimizer that they name. One gives back what the other took.
Attrs update_attrs(const OptimizerConfig& config);
OptimizerConfig update_config(const Attrs& attrs);

// The scalars of this step; `clip_factor` is the second number that grad_norm writes, 1 where there is none.
ULP_HD inline UpdateScalars update_scalars(const StepState& state, float clip_factor) {
  UpdateScalars scalars = state.update;
  scalars.grad_scale = scalars.grad_scale * clip_factor;
  return scalars;
}

// What grad_norm makes of the sum of squares of all raw gradients, in double on every backend.
struct NormAndFactor {
  float norm, factor;
};
NormAndFactor norm_and_factor(double squares, double grad_scale, double max_norm);

}  // namespace ulp
