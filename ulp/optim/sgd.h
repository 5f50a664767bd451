// Stochastic gradient descent with momentum, as PyTorch has it without dampening:
//   g' = g + weight_decay * w
//   m  = momentum * m + g'               (m starts at 0)
//   w -= lr * m, or with Nesterov's look ahead lr * (g' + momentum * m)
// Without momentum there is no state. What is guaranteed of bits and NaN stands in update.h.
#pragma once

#include "ulp/base/device.h"
#include "ulp/optim/arithmetic.h"
#include "ulp/optim/update.h"

namespace ulp {

struct Sgd {
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;

  static constexpr const char* kName = "sgd";
  static constexpr OptimizerTraits kTraits = {
      .lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4, .momentums = true, .states = {{"momentum"}}};
  static constexpr int kStates = 1;  // at most
  ULP_HD constexpr int states() const { return momentum != 0 ? 1 : 0; }

  template <typename Config>
  static Sgd make(const Config& c) {
    return {static_cast<float>(c.momentum), static_cast<float>(c.weight_decay), c.nesterov};
  }
  template <typename Near>
  void round_constants(const Near&) {}

  // What is subtracted from the weight. `state` is the momentum. Without momentum it still points
  // to a number, 0, whose new value nobody keeps; so a loop has no branch.
  template <typename Arithmetic = Wide>
  ULP_HD constexpr float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                                  const Arithmetic& q = {}) const {
    const float g = q(treat_gradient(s, grad, q) + q(weight_decay * weight));
    const float m = q(q(momentum * state[0]) + g);
    const float ahead = q(g + q(momentum * m));
    state[0] = settled(q, m);
    return settled(q, q(s.lr * (nesterov ? ahead : m)));
  }

  bool operator==(const Sgd&) const = default;
};

}  // namespace ulp
