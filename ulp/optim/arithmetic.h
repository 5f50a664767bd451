// What optimizers need of an arithmetic (update.h) besides rounding. An arithmetic with kUnsettled
// is a faster Wide. Its divisions, square roots and limits are right for ordinary numbers only, and
// it does not settle NaN. Whoever uses it looks at all results, and repeats the step with Wide if
// one is not ordinary.
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
ULP_HD float square_root(const Arithmetic& q, float x) {
  if constexpr (Unsettled<Arithmetic>) {
    return q.square_root(x);
  } else {
    return sqrtf(x);
  }
}

template <Unsettled Arithmetic>
ULP_HD constexpr float treat_gradient(const UpdateScalars& s, float grad, const Arithmetic& q) {
  return q.within(grad * s.grad_scale, s.clip_value);
}

}  // namespace ulp
