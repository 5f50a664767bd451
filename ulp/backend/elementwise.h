// Elementwise operators that need more than an element of each input: random words, values of a
// channel, the step's scalars. Those of single elements are in ulp/graph/ops/elementwise_table.h,
// whose rules for bits hold here too. The reference, the CPU's vector loops and the GPU all call
// these.
#pragma once

#include <cmath>
#include <cstdint>

#include "ulp/backend/step_state.h"
#include "ulp/base/device.h"
#include "ulp/graph/ops/elementwise_table.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/rounding.h"

namespace ulp::elementwise {

// Dropout's words are not those that round the same tensor: the seed is another one.
inline constexpr uint64_t kDropoutSeed = 0x64726F706F757421u;

// The key of a dropout's random words; `tensor` is the attribute of that name. Element i takes
// random_word(key, i).
ULP_HD constexpr RoundKey dropout_key(const StepState& state, uint32_t tensor) {
  return {state.seed ^ kDropoutSeed, state.step, tensor, state.micro_batch};
}

// What a dropout of probability p in [0, 1) works with: elements whose word is below `threshold`
// are dropped, the others grow by `scale`.
struct DropoutRule {
  uint32_t threshold;
  float scale;
};
ULP_HD constexpr DropoutRule dropout_rule(double p) {
  return {static_cast<uint32_t>(p * 0x1p32), static_cast<float>(1.0 / (1.0 - p))};
}

// The operator and its gradient: the same words give the same factor.
ULP_HD constexpr float dropout(float x, uint32_t word, const DropoutRule& rule) {
  const float kept = settle_nan(x * rule.scale);
  return choose(word < rule.threshold, 0.0f, kept);
}

ULP_HD constexpr float seed(float value, float loss_scale) { return settle_nan(value * loss_scale); }

// Batch norm. What belongs to a channel is worked out once:
//   inv = batch_inv(variance, epsilon), scale = Multiply(gamma, inv), and in backward the two sums
//   over n rows divided by n in fp32 (batch_mean).
ULP_HD inline float batch_inv(float variance, float epsilon) {
  return settle_nan(1.0f / sqrtf(variance + epsilon));
}
ULP_HD constexpr float batch_mean(float sum, float rows) { return settle_nan(sum / rows); }

ULP_HD constexpr float batch_norm(float x, float mean, float scale, float beta) {
  return settle_nan((x - mean) * scale + beta);
}
ULP_HD constexpr float batch_norm_grad(float dout, float x, float mean, float inv, float scale,
                                       float mean_dout, float mean_product) {
  return settle_nan(scale * ((dout - mean_dout) - ((x - mean) * inv) * mean_product));
}

// A running statistic after a batch: `keep` is 1 - momentum, rounded from double. The new variance
// is first multiplied by `unbias`.
ULP_HD constexpr float batch_track(float old, float now, float keep, float momentum) {
  return settle_nan(keep * old + momentum * now);
}
// n / (n - 1) for n rows, 1 for a single one.
ULP_HD constexpr float batch_unbias(double rows) {
  return rows > 1 ? static_cast<float>(rows / (rows - 1)) : 1.0f;
}

}  // namespace ulp::elementwise
