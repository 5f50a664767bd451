// The elementwise operators on single fp32 numbers, in the order of operations that ulp/graph/ops gives them. The
// reference, the vectorised loops of the CPU and the GPU all call these, so all write the same bits.
//
// Only IEEE operations, no fma. A NaN that an operation makes is the one of settle_nan: else its sign, which a format
// without NaN keeps, would depend on the processor. What an operator only passes on keeps its bits. Choices are
// masks on patterns, and arithmetic stays outside of them, so that a loop becomes vector code (ulp/numeric/math.h says
// why ?: would not do).
#pragma once

#include <cmath>
#include <cstdint>

#include "ulp/backend/step_state.h"
#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/rounding.h"

namespace ulp::elementwise {

ULP_HD constexpr float choose(bool condition, float a, float b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return bits_float(detail::select(mask, float_bits(a), float_bits(b)));
}

// NaN stays, -0 becomes +0. In integers, from the pattern of -0 to that of minus infinity: for a comparison of numbers a GPU
// takes its maximum, which makes a NaN of its own of any.
ULP_HD constexpr float relu(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t mask = 0u - static_cast<uint32_t>(bits - 0x80000000u <= 0x7F800000u);
  return bits_float(bits & ~mask);
}
ULP_HD constexpr float relu_grad(float dout, float out) { return choose(out > 0.0f, dout, 0.0f); }

ULP_HD constexpr float leaky_relu(float x, float slope) {
  const float below = slope * x;
  return choose(x < 0.0f, below, x);
}
ULP_HD constexpr float leaky_relu_grad(float dout, float out, float slope) {
  const float below = settle_nan(slope * dout);
  return choose(out < 0.0f, below, dout);
}

ULP_HD constexpr float tanh(float x) { return tanh_near(x); }
ULP_HD constexpr float tanh_grad(float dout, float out) { return settle_nan(dout * (1.0f - out * out)); }

ULP_HD constexpr float sigmoid(float x) { return sigmoid_near(x); }
ULP_HD constexpr float sigmoid_grad(float dout, float out) { return settle_nan(dout * (out * (1.0f - out))); }

// Dropout's words are not those that round the same tensor: the seed is another one.
inline constexpr uint64_t kDropoutSeed = 0x64726F706F757421u;

// The key of a dropout's random words; `tensor` is the attribute of that name. Element i takes random_word(key, i).
ULP_HD constexpr RoundKey dropout_key(const StepState& state, uint32_t tensor) {
  return {state.seed ^ kDropoutSeed, state.step, tensor, state.micro_batch};
}

// What a dropout of probability p in [0, 1) works with: elements whose word is below `threshold` are dropped, the
// others grow by `scale`.
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

// Also one step of a sum from left to right.
ULP_HD constexpr float add(float a, float b) { return settle_nan(a + b); }
ULP_HD constexpr float multiply(float a, float b) { return settle_nan(a * b); }
ULP_HD constexpr float copy(float x) { return x; }
ULP_HD constexpr float seed(float value, float loss_scale) { return settle_nan(value * loss_scale); }

// Batch norm. What belongs to a channel is worked out once:
//   inv = batch_inv(variance, epsilon), scale = multiply(gamma, inv), and in backward the two sums over n rows
//   divided by n in fp32 (batch_mean).
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

// A running statistic after a batch: `keep` is 1 - momentum, rounded from double. The new variance is first
// multiplied by `unbias`.
ULP_HD constexpr float batch_track(float old, float now, float keep, float momentum) {
  return settle_nan(keep * old + momentum * now);
}
// n / (n - 1) for n rows, 1 for a single one.
ULP_HD constexpr float batch_unbias(double rows) {
  return rows > 1 ? static_cast<float>(rows / (rows - 1)) : 1.0f;
}

}  // namespace ulp::elementwise
