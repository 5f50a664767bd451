// Adam (Kingma and Ba) and AdamW (Loshchilov and Hutter), as PyTorch has them:
//   m = beta1 * m + (1 - beta1) * g      v = beta2 * v + (1 - beta2) * g^2      (both start at 0)
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// Adam adds weight_decay * w to the gradient. AdamW leaves the gradient alone and takes lr * weight_decay * w
// off the weight; that and the step are added first, so that the weight is rounded once. What is guaranteed of
// bits and NaN stands in update.h; square roots are IEEE's, correctly rounded.
#pragma once

#include <cmath>

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/optim/update.h"

namespace ulp {

// The moments, and the step that they give. 1 - beta is kept beside beta: worked out in fp32 it would lose up to
// ten bits where beta is near 1.
struct AdamMoments {
  float beta1 = 0.9f, rest1 = 0.1f;
  float beta2 = 0.999f, rest2 = 0.001f;
  float eps = 1e-8f;

  // `state` is (m, v).
  ULP_HD float decrease(const UpdateScalars& s, float g, float* state) const {
    const float m = settle_nan(beta1 * state[0] + rest1 * g);
    const float v = settle_nan(beta2 * state[1] + rest2 * (g * g));
    state[0] = m;
    state[1] = v;
    return s.adam_rate * (m / (sqrtf(v) * s.adam_root + eps));
  }

  bool operator==(const AdamMoments&) const = default;
};

struct Adam {
  AdamMoments moments = {};
  float weight_decay = 0;

  static constexpr int kStates = 2;
  ULP_HD constexpr int states() const { return kStates; }

  // What is taken off the weight.
  ULP_HD float decrease(const UpdateScalars& s, float weight, float grad, float* state) const {
    return settle_nan(moments.decrease(s, treat_gradient(s, grad) + weight_decay * weight, state));
  }
  // The new weight.
  ULP_HD float step(const UpdateScalars& s, float weight, float grad, float* state) const {
    return settle_nan(weight - decrease(s, weight, grad, state));
  }

  bool operator==(const Adam&) const = default;
};

struct AdamW {
  AdamMoments moments = {};
  float weight_decay = 0;

  static constexpr int kStates = 2;
  ULP_HD constexpr int states() const { return kStates; }

  // What is taken off the weight.
  ULP_HD float decrease(const UpdateScalars& s, float weight, float grad, float* state) const {
    const float decay = (s.lr * weight_decay) * weight;
    return settle_nan(decay + moments.decrease(s, treat_gradient(s, grad), state));
  }
  // The new weight.
  ULP_HD float step(const UpdateScalars& s, float weight, float grad, float* state) const {
    return settle_nan(weight - decrease(s, weight, grad, state));
  }

  bool operator==(const AdamW&) const = default;
};

}  // namespace ulp
