// Layer norm, row by row, in double between the fp32 inputs and outputs.
#include <cmath>

#include "ulp/backend/cpu/example.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/example_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::example::HWY_NAMESPACE {

constexpr int64_t kSums = 8;

HWY_INLINE double total(const double* sums) {
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Calls add(k, i) for every i below n, each with one of eight running sums k.
template <typename Add>
HWY_INLINE void for_sums(int64_t n, const Add& add) {
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) add(k, i + k);
  }
  for (int64_t k = 0; i + k < n; ++k) add(k, i + k);
}

void layer_norm(const Call& call) {
  const int64_t channels = call.in_shape(0).back();
  const double epsilon = call.node.attrs.real("epsilon"), n = static_cast<double>(channels);
  const float *HWY_RESTRICT gamma = call.in(1), *HWY_RESTRICT beta = call.in(2);
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float* HWY_RESTRICT x = call.in(0) + r * channels;
    float* HWY_RESTRICT out = call.out(0) + r * channels;
    double sums[kSums] = {}, squares[kSums] = {};
    for_sums(channels, [&](int64_t k, int64_t i) { sums[k] += x[i]; });
    const double mean = total(sums) / n;
    for_sums(channels, [&](int64_t k, int64_t i) { squares[k] += (x[i] - mean) * (x[i] - mean); });
    const double variance = total(squares) / n, inv = 1 / std::sqrt(variance + epsilon);
    for (int64_t i = 0; i < channels; ++i)
      out[i] = static_cast<float>((x[i] - mean) * inv * gamma[i] + beta[i]);
    call.out(1)[r] = static_cast<float>(mean);
    call.out(2)[r] = static_cast<float>(variance);
  }
}

// With u = (x - mean) inv and g = dout gamma: dx = inv (g - mean(g) - u mean(g u)), means over the
// row.
void layer_norm_grad(const Call& call) {
  const int64_t channels = call.in_shape(0).back();
  const double epsilon = call.node.attrs.real("epsilon"), n = static_cast<double>(channels);
  const float* HWY_RESTRICT gamma = call.in(2);
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float *HWY_RESTRICT dout = call.in(0) + r * channels, *HWY_RESTRICT x = call.in(1) + r * channels;
    float* HWY_RESTRICT dx = call.out() + r * channels;
    const double mean = call.in(3)[r], inv = 1 / std::sqrt(call.in(4)[r] + epsilon);
    double sums[kSums] = {}, products[kSums] = {};
    for_sums(channels, [&](int64_t k, int64_t i) {
      const double g = static_cast<double>(dout[i]) * gamma[i];
      sums[k] += g;
      products[k] += g * (x[i] - mean) * inv;
    });
    const double sum = total(sums) / n, product = total(products) / n;
    for (int64_t i = 0; i < channels; ++i) {
      const double g = static_cast<double>(dout[i]) * gamma[i];
      dx[i] = static_cast<float>(inv * (g - sum - (x[i] - mean) * inv * product));
    }
  }
}

}  // namespace ulp::example::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::example {
namespace {

HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_grad);

void run_layer_norm(const Call& call) { HWY_DYNAMIC_DISPATCH(layer_norm)(call); }
void run_layer_norm_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(layer_norm_grad)(call); }

}  // namespace

std::span<const KernelDef> norm_kernels() {
  // All rows share gamma and beta.
  static constexpr KernelDef kernels[] = {
      kernel<run_layer_norm, Item::row, 0b110>("layer_norm"),
      kernel<run_layer_norm_grad, Item::row, 0b100>("layer_norm_grad"),
  };
  return kernels;
}

}  // namespace ulp::example
#endif
