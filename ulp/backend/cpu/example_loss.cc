// Softmax and losses, row by row. Everything between the fp32 inputs and outputs is in double.
#include "ulp/backend/cpu/example.h"
#include "ulp/base/error.h"
#include "ulp/numeric/wide.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/example_loss.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::example::HWY_NAMESPACE {

// The sum of term(i), in eight running sums, which the compiler keeps in vectors.
template <typename Term>
HWY_INLINE double sum_of(int64_t n, const Term& term) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += term(i + k);
  }
  for (int64_t k = 0; i + k < n; ++k) sums[k] += term(i + k);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The logarithm of a row's sum of e^x, in two parts. The largest x is factored out so that nothing
// overflows, and kept separately, because next to a large value the other part would vanish.
struct LogSum {
  double largest = 0, rest = 0;
  HWY_INLINE double log_p(float x) const { return (x - largest) - rest; }
};

HWY_INLINE LogSum log_sum_exp(const float* x, int64_t n) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  const double top = largest;
  return {top, log_wide(sum_of(n, [=](int64_t i) { return exp_wide(x[i] - top); }))};
}

void softmax(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float* HWY_RESTRICT x = call.in(0) + r * n;
    float* HWY_RESTRICT out = call.out() + r * n;
    const LogSum log_sum = log_sum_exp(x, n);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(exp_wide(log_sum.log_p(x[i])));
  }
}

void softmax_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float *HWY_RESTRICT dout = call.in(0) + r * n, *HWY_RESTRICT out = call.in(1) + r * n;
    float* HWY_RESTRICT dx = call.out() + r * n;
    const double sum = sum_of(n, [=](int64_t i) { return static_cast<double>(dout[i]) * out[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<float>(out[i] * (dout[i] - sum));
  }
}

void log_softmax(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float* HWY_RESTRICT x = call.in(0) + r * n;
    float* HWY_RESTRICT out = call.out() + r * n;
    const LogSum log_sum = log_sum_exp(x, n);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(log_sum.log_p(x[i]));
  }
}

void log_softmax_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float *HWY_RESTRICT dout = call.in(0) + r * n, *HWY_RESTRICT out = call.in(1) + r * n;
    float* HWY_RESTRICT dx = call.out() + r * n;
    const double sum = sum_of(n, [=](int64_t i) { return static_cast<double>(dout[i]); });
    for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<float>(dout[i] - exp_wide(out[i]) * sum);
  }
}

// The label of a row, one of n classes.
HWY_INLINE int64_t label_of(const Call& call, size_t input, int64_t row, int64_t n) {
  const int64_t label = call.indices(input)[row];
  if (label < 0 || label >= n) {
    fail("backend", "{}: label {} of example {} is none of the classes 0 to {}", call.node.name, label,
         call.first + static_cast<size_t>(row), n - 1);
  }
  return label;
}

// Label smoothing: the weight of every class, and the extra weight of the label's.
struct Smoothed {
  double rest, top;
  Smoothed(const Call& call, int64_t classes)
      : rest(call.node.attrs.real("smoothing") / static_cast<double>(classes)),
        top(1 - call.node.attrs.real("smoothing")) {}

  // A class with zero weight is skipped: its logarithm may be infinite.
  HWY_INLINE double loss(const float* x, const LogSum& log_sum, int64_t n, int64_t label) const {
    double sum = -top * log_sum.log_p(x[label]);
    if (rest != 0) sum -= rest * sum_of(n, [=](int64_t i) { return log_sum.log_p(x[i]); });
    return sum;
  }
};

void nll(const Call& call) {
  const int64_t n = call.in_shape(0).back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    call.out()[r] = static_cast<float>(weight.loss(call.in(0) + r * n, {}, n, label_of(call, 1, r, n)));
  }
}

void nll_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const int64_t label = label_of(call, 1, r, n);
    const double dout = -static_cast<double>(call.in(0)[r]);
    float* dx = call.out() + r * n;
    const auto rest = static_cast<float>(dout * weight.rest);
    for (int64_t i = 0; i < n; ++i) dx[i] = rest;
    dx[label] = static_cast<float>(dout * (weight.rest + weight.top));
  }
}

void cross_entropy(const Call& call) {
  const int64_t n = call.in_shape(0).back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float* x = call.in(0) + r * n;
    call.out()[r] = static_cast<float>(weight.loss(x, log_sum_exp(x, n), n, label_of(call, 1, r, n)));
  }
}

void cross_entropy_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float* HWY_RESTRICT x = call.in(1) + r * n;
    float* HWY_RESTRICT dx = call.out() + r * n;
    const LogSum log_sum = log_sum_exp(x, n);
    const double dout = call.in(0)[r], rest = weight.rest;
    const int64_t label = label_of(call, 2, r, n);
    for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<float>(dout * (exp_wide(log_sum.log_p(x[i])) - rest));
    dx[label] = static_cast<float>(dout * (exp_wide(log_sum.log_p(x[label])) - (rest + weight.top)));
  }
}

struct Square {
  static HWY_INLINE double loss(float x, float t) {
    const double rest = static_cast<double>(x) - t;
    return rest * rest;
  }
  static HWY_INLINE double slope(float x, float t) { return 2 * (static_cast<double>(x) - t); }
};

struct Logit {
  static HWY_INLINE double loss(float x, float t) { return log1p_exp(x) - static_cast<double>(x) * t; }
  static HWY_INLINE double slope(float x, float t) { return static_cast<double>(sigmoid_near(x)) - t; }
};

// Losses against a target: the mean over an example, and its derivative.
template <typename Term>
HWY_INLINE void target_loss(const Call& call) {
  const auto n = static_cast<int64_t>(call.in_shape(0).elements()) / call.in_shape(0)[0];
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float *x = call.in(0) + r * n, *t = call.in(1) + r * n;
    const double sum = sum_of(n, [=](int64_t i) { return Term::loss(x[i], t[i]); });
    call.out()[r] = static_cast<float>(sum / static_cast<double>(n));
  }
}

template <typename Term>
HWY_INLINE void target_loss_grad(const Call& call) {
  const auto n = static_cast<int64_t>(call.out_shape().elements()) / call.out_shape()[0];
  for (int64_t r = 0; r < static_cast<int64_t>(call.count); ++r) {
    const float *HWY_RESTRICT x = call.in(1) + r * n, *HWY_RESTRICT t = call.in(2) + r * n;
    float* HWY_RESTRICT dx = call.out() + r * n;
    const double dout = call.in(0)[r], size = static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<float>(dout * Term::slope(x[i], t[i]) / size);
  }
}

void mse(const Call& call) { target_loss<Square>(call); }
void mse_grad(const Call& call) { target_loss_grad<Square>(call); }
void bce_with_logits(const Call& call) { target_loss<Logit>(call); }
void bce_with_logits_grad(const Call& call) { target_loss_grad<Logit>(call); }

}  // namespace ulp::example::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::example {
namespace {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_grad);
HWY_EXPORT(log_softmax);
HWY_EXPORT(log_softmax_grad);
HWY_EXPORT(nll);
HWY_EXPORT(nll_grad);
HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_grad);
HWY_EXPORT(mse);
HWY_EXPORT(mse_grad);
HWY_EXPORT(bce_with_logits);
HWY_EXPORT(bce_with_logits_grad);

void run_softmax(const Call& call) { HWY_DYNAMIC_DISPATCH(softmax)(call); }
void run_softmax_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(softmax_grad)(call); }
void run_log_softmax(const Call& call) { HWY_DYNAMIC_DISPATCH(log_softmax)(call); }
void run_log_softmax_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(log_softmax_grad)(call); }
void run_nll(const Call& call) { HWY_DYNAMIC_DISPATCH(nll)(call); }
void run_nll_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(nll_grad)(call); }
void run_cross_entropy(const Call& call) { HWY_DYNAMIC_DISPATCH(cross_entropy)(call); }
void run_cross_entropy_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(cross_entropy_grad)(call); }
void run_mse(const Call& call) { HWY_DYNAMIC_DISPATCH(mse)(call); }
void run_mse_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(mse_grad)(call); }
void run_bce(const Call& call) { HWY_DYNAMIC_DISPATCH(bce_with_logits)(call); }
void run_bce_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(bce_with_logits_grad)(call); }

}  // namespace

std::span<const KernelDef> loss_kernels() {
  static constexpr KernelDef kernels[] = {
      kernel<run_softmax, Item::row>("softmax"),
      kernel<run_softmax_grad, Item::row>("softmax_grad"),
      kernel<run_log_softmax, Item::row>("log_softmax"),
      kernel<run_log_softmax_grad, Item::row>("log_softmax_grad"),
      kernel<run_nll, Item::image>("nll"),
      kernel<run_nll_grad, Item::image>("nll_grad"),
      kernel<run_cross_entropy, Item::image>("cross_entropy"),
      kernel<run_cross_entropy_grad, Item::image>("cross_entropy_grad"),
      kernel<run_mse, Item::image>("mse"),
      kernel<run_mse_grad, Item::image>("mse_grad"),
      kernel<run_bce, Item::image>("bce_with_logits"),
      kernel<run_bce_grad, Item::image>("bce_with_logits_grad"),
  };
  return kernels;
}

}  // namespace ulp::example
#endif
