// Stochastic gradient descent with momentum, as PyTorch has it without dampening:
//   g' = g + weight_decay * w
//   m  = momentum * m + g'               (m starts at 0)
//   w -= lr * m, or with Nesterov's look ahead lr * (g' + momentum * m)
// Without momentum there is no state. What is guaranteed of bits and NaN stands in update.h.
#pragma once

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/optim/update.h"

namespace ulp {

struct Sgd {
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;

  static constexpr int kStates = 1;  // at most
  ULP_HD constexpr int states() const { return momentum != 0 ? 1 : 0; }

  // What is taken off the weight. `state` is the momentum; without any it still points to a number, which is 0
  // and whose new value nobody keeps, so that a loop has no branch. Rules that carry a rest from step to step
  // want this and not the new weight.
  ULP_HD constexpr float decrease(const UpdateScalars& s, float weight, float grad, float* state) const {
    const float g = treat_gradient(s, grad) + weight_decay * weight;
    const float m = momentum * state[0] + g;
    const float ahead = g + momentum * m;
    state[0] = settle_nan(m);
    return settle_nan(s.lr * (nesterov ? ahead : m));
  }

  // The new weight.
  ULP_HD constexpr float step(const UpdateScalars& s, float weight, float grad, float* state) const {
    return settle_nan(weight - decrease(s, weight, grad, state));
  }

  bool operator==(const Sgd&) const = default;
};

}  // namespace ulp
