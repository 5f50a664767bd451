// What optimizers ask of an arithmetic (update.h) beside the rounding of results. One that names
// itself kUnsettled computes as Wide does, for those who look at all results and do a step again by
// Wide where one is not ordinary: it need not settle NaN, and has divisions, square roots and
// limits of its own, which are right for ordinary numbers.
#pragma once

#include <cmath>

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/optim/update.h"

namespace ulp {

template <typename Arithmetic>
concept Unsettled = Arithmetic::kUnsettled;

// A result that is kept.
template <typename Arithmetic>
ULP_HD constexpr float settled(const Arithmetic& /*q*/, float x) {
  if constexpr (Unsettled<Arithmetic>) {
    return x;
  } else {
    return settle_nan(x);
  }
}

// In fp32.
template <typename Arithmetic>
ULP_HD constexpr float quotient(const Arithmetic& q, float a, float b) {
  if constexpr (Unsettled<Arithmetic>) {
    return q.quotient(a, b);
  } else {
    return a / b;
  }
}
template <typename Arithmetic>
ULP_HD float root(const Arithmetic& q, float x) {
  if constexpr (Unsettled<Arithmetic>) {
    return q.root(x);
  } else {
    return sqrtf(x);
  }
}

template <Unsettled Arithmetic>
ULP_HD constexpr float treat_gradient(const UpdateScalars& s, float grad, const Arithmetic& q) {
  return q.within(grad * s.grad_scale, s.clip_value);
}

}  // namespace ulp
