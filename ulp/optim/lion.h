// Lion (Chen et al., 2023): the sign of an interpolated momentum, with decoupled weight decay:
//   u = sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g      (m starts at 0)
//   w -= lr * u + lr * weight_decay * w
// The sign of zero is zero, that of NaN is NaN. Every update has the size of the learning rate, so
// rates are three to ten times smaller than Adam's. What is guaranteed of bits and NaN stands in
// update.h.
#pragma once

#include "ulp/base/device.h"
#include "ulp/optim/arithmetic.h"
#include "ulp/optim/update.h"

namespace ulp {

struct Lion {
  float beta1 = 0.9f, rest1 = 0.1f;
  float beta2 = 0.99f, rest2 = 0.01f;
  float weight_decay = 0;

  static constexpr const char* kName = "lion";
  static constexpr OptimizerTraits kTraits = {.lr = 1e-4,
                                              .moments = true,
                                              .beta2 = 0.99,
                                              .beta1_help = "the momentum's part in the sign",
                                              .beta2_help = "what stays of the momentum",
                                              .states = {{"exp_avg"}}};
  static constexpr int kStates = 1;
  ULP_HD constexpr int states() const { return kStates; }

  template <typename Config>
  static Lion make(const Config& c) {
    return {static_cast<float>(c.beta1), static_cast<float>(1 - c.beta1), static_cast<float>(c.beta2),
            static_cast<float>(1 - c.beta2), static_cast<float>(c.weight_decay)};
  }
  template <typename Near>
  void round_constants(const Near& near) {
    rest1 = near(rest1);
    rest2 = near(rest2);
  }

  // What is subtracted from the weight. `state` is the momentum.
  template <typename Arithmetic = Wide>
  ULP_HD constexpr float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                                  const Arithmetic& q = {}) const {
    const float g = treat_gradient(s, grad, q);
    const float mixed = q(q(beta1 * state[0]) + q(rest1 * g));
    state[0] = settled(q, q(q(beta2 * state[0]) + q(rest2 * g)));
    const float one = static_cast<float>(mixed > 0) - static_cast<float>(mixed < 0);
    const float sign = mixed == mixed ? one : mixed;
    const float rate = Arithmetic::kNarrow ? s.decay_rate : s.lr * weight_decay;
    return settled(q, q(q(rate * weight) + q(s.lr * sign)));
  }

  bool operator==(const Lion&) const = default;
};

}  // namespace ulp
