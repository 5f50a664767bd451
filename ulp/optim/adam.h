// Adam (Kingma and Ba) and AdamW (Loshchilov and Hutter), as PyTorch has them:
//   m = beta1 * m + (1 - beta1) * g      v = beta2 * v + (1 - beta2) * g^2      (both start at 0)
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// Adam adds weight_decay * w to the gradient. AdamW leaves the gradient alone and takes lr *
// weight_decay * w off the weight; that and the step are added first, so that the weight is rounded
// once. What is guaranteed of bits and NaN stands in update.h; square roots are IEEE's, correctly
// rounded.
//
// In narrow arithmetic the step follows the order of algorithms 4 and 5 of the BF16 paper:
//   lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
#pragma once

#include <cmath>

#include "ulp/base/device.h"
#include "ulp/optim/arithmetic.h"
#include "ulp/optim/update.h"

namespace ulp {

inline constexpr char kBeta1Help[] = "what stays of the mean of gradients";
inline constexpr char kBeta2Help[] = "what stays of the mean of squares";

// The moments, and the step that they give. 1 - beta is kept beside beta: computed in fp32 it would
// lose up to ten bits if beta is near 1.
struct AdamMoments {
  float beta1 = 0.9f, rest1 = 0.1f;
  float beta2 = 0.999f, rest2 = 0.001f;
  float eps = 1e-8f;

  template <typename Config>
  static AdamMoments make(const Config& c) {
    return {static_cast<float>(c.beta1), static_cast<float>(1 - c.beta1), static_cast<float>(c.beta2),
            static_cast<float>(1 - c.beta2), static_cast<float>(c.eps)};
  }
  template <typename Near>
  void round_constants(const Near& near) {
    rest1 = near(rest1);
    rest2 = near(rest2);
  }

  // `state` is (m, v).
  template <typename Arithmetic>
  ULP_HD float decrease(const UpdateScalars& s, float g, float* state, const Arithmetic& q) const {
    const float m = settled(q, q(q(beta1 * state[0]) + q(rest1 * g)));
    const float v = settled(q, q(q(beta2 * state[1]) + q(rest2 * q(g * g))));
    state[0] = m;
    state[1] = v;
    if constexpr (Arithmetic::kNarrow) {
      const float square_root = q(sqrtf(q(v / s.rest2)));
      return q(q(s.lr * q(m / s.rest1)) / q(square_root + eps));
    } else {
      return s.adam_rate * quotient(q, m, square_root(q, v) * s.adam_root + eps);
    }
  }

  bool operator==(const AdamMoments&) const = default;
};

struct Adam {
  AdamMoments moments = {};
  float weight_decay = 0;

  static constexpr const char* kName = "adam";
  static constexpr OptimizerTraits kTraits = {.lr = 0.001,
                                              .eps = 1e-8,
                                              .moments = true,
                                              .beta2 = 0.999,
                                              .beta1_help = kBeta1Help,
                                              .beta2_help = kBeta2Help,
                                              .states = {{"exp_avg"}, {"exp_avg_sq", true}}};
  static constexpr int kStates = 2;
  ULP_HD constexpr int states() const { return kStates; }

  template <typename Config>
  static Adam make(const Config& c) {
    return {AdamMoments::make(c), static_cast<float>(c.weight_decay)};
  }
  template <typename Near>
  void round_constants(const Near& near) {
    moments.round_constants(near);
  }

  // What is subtracted from the weight.
  template <typename Arithmetic = Wide>
  ULP_HD float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                        const Arithmetic& q = {}) const {
    const float g = q(treat_gradient(s, grad, q) + q(weight_decay * weight));
    return settled(q, moments.decrease(s, g, state, q));
  }

  bool operator==(const Adam&) const = default;
};

struct AdamW {
  AdamMoments moments = {};
  float weight_decay = 0;

  static constexpr const char* kName = "adamw";
  static constexpr OptimizerTraits kTraits = {.lr = 0.001,
                                              .weight_decay = 0.01,
                                              .eps = 1e-8,
                                              .moments = true,
                                              .beta2 = 0.999,
                                              .beta1_help = kBeta1Help,
                                              .beta2_help = kBeta2Help,
                                              .states = {{"exp_avg"}, {"exp_avg_sq", true}}};
  static constexpr int kStates = 2;
  ULP_HD constexpr int states() const { return kStates; }

  template <typename Config>
  static AdamW make(const Config& c) {
    return {AdamMoments::make(c), static_cast<float>(c.weight_decay)};
  }
  template <typename Near>
  void round_constants(const Near& near) {
    moments.round_constants(near);
  }

  // What is subtracted from the weight.
  template <typename Arithmetic = Wide>
  ULP_HD float decrease(const UpdateScalars& s, float weight, float grad, float* state,
                        const Arithmetic& q = {}) const {
    const float rate = Arithmetic::kNarrow ? s.decay_rate : s.lr * weight_decay;
    const float decay = q(rate * weight);
    return settled(q, q(decay + moments.decrease(s, treat_gradient(s, grad, q), state, q)));
  }

  bool operator==(const AdamW&) const = default;
};

}  // namespace ulp
