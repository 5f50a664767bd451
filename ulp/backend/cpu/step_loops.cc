#include "ulp/backend/cpu/step_loops.h"

#include <variant>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/step_loops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::step::HWY_NAMESPACE {

template <int states, typename Rule>
HWY_INLINE void loop(const Rule& optimizer, const UpdateScalars& given, size_t n,
                     const float* HWY_RESTRICT grad, float* HWY_RESTRICT weight, float* HWY_RESTRICT first,
                     float* HWY_RESTRICT second) {
  // Copies that nothing else can point to.
  const Rule rule = optimizer;
  const UpdateScalars scalars = given;
  for (size_t i = 0; i < n; ++i) {
    float state[2] = {};
    if constexpr (states > 0) state[0] = first[i];
    if constexpr (states > 1) state[1] = second[i];
    weight[i] = rule.step(scalars, weight[i], grad[i], state);
    if constexpr (states > 0) first[i] = state[0];
    if constexpr (states > 1) second[i] = state[1];
  }
}

void advance(const Optimizer& optimizer, const UpdateScalars& scalars, size_t n, const float* grad,
             float* weight, float* const* state) {
  if (const Sgd* sgd = std::get_if<Sgd>(&optimizer)) {
    if (sgd->states() == 0) return loop<0>(*sgd, scalars, n, grad, weight, nullptr, nullptr);
    return loop<1>(*sgd, scalars, n, grad, weight, state[0], nullptr);
  }
  if (const Adam* adam = std::get_if<Adam>(&optimizer))
    return loop<2>(*adam, scalars, n, grad, weight, state[0], state[1]);
  return loop<2>(*std::get_if<AdamW>(&optimizer), scalars, n, grad, weight, state[0], state[1]);
}

double squares(const float* x, size_t n) {
  constexpr size_t kSums = 16;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t k = 0; k < kSums; ++k) sums[k] += static_cast<double>(x[i + k]) * x[i + k];
  }
  for (size_t k = 0; i + k < n; ++k) sums[k] += static_cast<double>(x[i + k]) * x[i + k];
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

}  // namespace ulp::step::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::step {

HWY_EXPORT(advance);
HWY_EXPORT(squares);

void advance(const Optimizer& optimizer, const UpdateScalars& scalars, size_t n, const float* grad,
             float* weight, float* const* state) {
  HWY_DYNAMIC_DISPATCH(advance)(optimizer, scalars, n, grad, weight, state);
}

double squares(const float* x, size_t n) { return HWY_DYNAMIC_DISPATCH(squares)(x, n); }

}  // namespace ulp::step
#endif
