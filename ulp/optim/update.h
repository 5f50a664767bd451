// What every optimizer shares: the scalars of one step, and what happens to a raw gradient before the optimizer
// sees it. Optimizers know one element: its weight, its gradient and its states, all as fp32 numbers. How those
// are stored, and how the new weight is rounded into its storage, is decided elsewhere.
//
// Steps use IEEE operations in fp32 in a fixed order and no fma, so they give the same bits on CPU and GPU and
// in a vectorised loop. A NaN that comes out, in a weight or a state, is the one of kNanBits (math.h).
#pragma once

#include "ulp/base/device.h"

namespace ulp {

// The same for all elements of a step. update_scalars (optimizer.h) works them out in double.
struct UpdateScalars {
  float lr;          // the learning rate of this step
  float grad_scale;  // factor on the raw gradient: one over the loss scale, times that of clipping by norm
  float clip_value;  // then gradients are cut to [-clip_value, clip_value]; infinity: not
  float adam_rate;   // lr / (1 - beta1^t), t the number of the update, from 1
  float adam_root;   // 1 / sqrt(1 - beta2^t): corrects the square root of the second moment
};

// The gradient as an optimizer takes it. A NaN stays one: it fails both comparisons.
ULP_HD constexpr float treat_gradient(const UpdateScalars& s, float grad) {
  const float g = grad * s.grad_scale;
  const float below = g > s.clip_value ? s.clip_value : g;
  return below < -s.clip_value ? -s.clip_value : below;
}

}  // namespace ulp
