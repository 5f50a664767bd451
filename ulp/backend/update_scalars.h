// The scalars that an update derives from a step's. Host and device compile this source and get the
// same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/optim/update.h"

namespace ulp {

// The scalars of one parameter. `clip_factor` is the second number that grad_norm writes, 1 where
// there is none; `lr_factor` that of the parameter's group.
ULP_HD constexpr UpdateScalars parameter_scalars(UpdateScalars scalars, float clip_factor, float lr_factor) {
  scalars.grad_scale = scalars.grad_scale * clip_factor;
  if (lr_factor != 1) {
    scalars.lr = scalars.lr * lr_factor;
    scalars.adam_rate = scalars.adam_rate * lr_factor;
  }
  return scalars;
}

// The same in narrow arithmetic. A group may have a decay of its own.
template <typename Near>
ULP_HD constexpr UpdateScalars narrow_scalars(UpdateScalars scalars, float weight_decay, const Near& near) {
  scalars.lr = near(scalars.lr);
  const bool finite = (float_bits(scalars.clip_value) & 0x7FFFFFFFu) < 0x7F800000u;
  if (finite) scalars.clip_value = near(scalars.clip_value);
  scalars.decay_rate = near(scalars.lr * weight_decay);
  return scalars;
}

// What grad_norm makes of the sums of squares of all raw gradients, added in order, in double on
// every backend.
struct NormAndFactor {
  float norm, factor;
};
// The factor comes from the norm in double: one that fp32 cannot hold still scales as it should.
ULP_HD inline NormAndFactor norm_and_factor(double squares, double grad_scale, double max_norm) {
  const double norm = sqrt(squares) * fabs(grad_scale);
  const bool number = norm == norm;
  const double factor = !number ? norm : norm > max_norm ? max_norm / norm : 1;
  return {settle_nan(static_cast<float>(norm)), settle_nan(static_cast<float>(factor))};
}

}  // namespace ulp
