// Adagrad (Duchi, Hazan and Singer), as PyTorch has it:
//   g' = g + weight_decay * w
//   s += g'^2                            (s starts at 0)
//   w -= lr * g' / (sqrt(s) + eps)
// The sum only grows. What is guaranteed of bits and NaN stands in update.h.
#pragma once

#include <cmath>

#include "ulp/base/device.h"
#include "ulp/optim/arithmetic.h"
#include "ulp/optim/update.h"

namespace ulp {

struct Adagrad {
  float weight_decay = 0;
  float eps = 1e-10f;

  static constexpr const char* kName = "adagrad";
  static constexpr OptimizerTraits kTraits = {
      .lr = 0.01, .eps = 1e-10, .only_grows = true, .states = {{"sum", true}}};
  static constexpr int kStates = 1;
  ULP_HD constexpr int states() const { return kStates; }

  template <typename Config>
  static Adagrad make(const Config& c) {
    return {static_cast<float>(c.weight_decay), static_cast<float>(c.eps)};
  }
  template <typename Near>
  void round_constants(const Near&) {}

  // What is subtracted from the weight. `state` is the sum of squares.
  template <typename Arithmetic = Wide>
  ULP_HD float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                        const Arithmetic& q = {}) const {
    const float g = q(treat_gradient(s, grad, q) + q(weight_decay * weight));
    const float sum = settled(q, q(state[0] + q(g * g)));
    state[0] = sum;
    return settled(q, q(q(s.lr * g) / q(q(sqrtf(sum)) + eps)));
  }

  bool operator==(const Adagrad&) const = default;
};

}  // namespace ulp
