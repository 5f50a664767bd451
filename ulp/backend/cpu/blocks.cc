// Compiled once for each vector unit: the compiler vectorises these loops under each target's
// attributes.
#include "ulp/backend/cpu/blocks.h"

#include <algorithm>
#include <utility>

#include "ulp/backend/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::blocks::HWY_NAMESPACE {

namespace el = ulp::elementwise;

// An output may overlay an input, element on element: no iteration depends on another.
#define ULP_LOOP _Pragma("GCC ivdep")

template <typename Op>
void forward(const StageArgs& a) {
  const float* x = a.in[0];
  float* out = a.out;
  const float s = a.scalar[0];
  ULP_LOOP for (size_t i = 0; i < a.n; ++i) out[i] = Op::forward(x[i], s);
}

template <typename Op>
void backward(const StageArgs& a) {
  const float *dout = a.in[0], *saved = a.in[1];
  float* out = a.out;
  const float s = a.scalar[0];
  ULP_LOOP for (size_t i = 0; i < a.n; ++i) out[i] = Op::grad(dout[i], saved[i], s);
}

template <typename Op>
void binary(const StageArgs& a) {
  const float *x = a.in[0], *y = a.in[1];
  float* out = a.out;
  ULP_LOOP for (size_t i = 0; i < a.n; ++i) out[i] = Op::forward(x[i], y[i]);
}

void copy(const StageArgs& a) {
  const float* x = a.in[0];
  float* out = a.out;
  ULP_LOOP for (size_t i = 0; i < a.n; ++i) out[i] = x[i];
}

// From left to right. The output may overlay any of the inputs, so a few elements at a time are
// summed before they are written.
void sum(const StageArgs& a) {
  constexpr size_t kFew = 64;
  for (size_t begin = 0; begin < a.n; begin += kFew) {
    const size_t n = std::min(kFew, a.n - begin);
    float total[kFew];
    std::copy(a.in[0] + begin, a.in[0] + begin + n, total);
    for (size_t k = 1; k < a.inputs; ++k) {
      const float* x = a.in[k] + begin;
      for (size_t i = 0; i < n; ++i) total[i] = el::Add::forward(total[i], x[i]);
    }
    std::copy(total, total + n, a.out + begin);
  }
}

void seed(const StageArgs& a) { std::fill(a.out, a.out + a.n, a.scalar[0]); }

void dropout(const StageArgs& a) {
  const float* x = a.in[0];
  float* out = a.out;
  const el::DropoutRule rule{a.threshold, a.scalar[0]};
  for (size_t i = 0; i < a.n; i += 4) {
    const PhiloxWords words = philox(round_counter(a.words, (a.first + i) / 4), round_philox_key(a.words));
    for (size_t k = 0; k < std::min<size_t>(4, a.n - i); ++k)
      out[i + k] = el::dropout(x[i + k], words.word[k], rule);
  }
}

void batch_norm(const StageArgs& a) {
  const float *mean = a.param[0], *scale = a.param[1], *beta = a.param[2];
  for (size_t begin = 0; begin < a.n; begin += a.period) {
    const size_t n = std::min(a.period, a.n - begin);
    const float* x = a.in[0] + begin;
    float* out = a.out + begin;
    ULP_LOOP for (size_t i = 0; i < n; ++i) out[i] = el::batch_norm(x[i], mean[i], scale[i], beta[i]);
  }
}

void batch_norm_grad(const StageArgs& a) {
  const float *mean = a.param[0], *inv = a.param[1], *scale = a.param[2], *dmean = a.param[3],
              *product = a.param[4];
  for (size_t begin = 0; begin < a.n; begin += a.period) {
    const size_t n = std::min(a.period, a.n - begin);
    const float *dout = a.in[0] + begin, *x = a.in[1] + begin;
    float* out = a.out + begin;
    ULP_LOOP for (size_t i = 0; i < n; ++i) {
      out[i] = el::batch_norm_grad(dout[i], x[i], mean[i], inv[i], scale[i], dmean[i], product[i]);
    }
  }
}

void sum_rows(const SumArgs& a) {
  float* out = a.out[0];
  std::fill(out, out + a.period, 0.0f);
  for (size_t begin = 0; begin < a.n; begin += a.period) {
    const size_t n = std::min(a.period, a.n - begin);
    const float* x = a.in[0] + begin;
    ULP_LOOP for (size_t i = 0; i < n; ++i) out[i] += x[i];
  }
}

void sum_squares(const SumArgs& a) {
  float* out = a.out[0];
  const float* mean = a.param[0];
  std::fill(out, out + a.period, 0.0f);
  for (size_t begin = 0; begin < a.n; begin += a.period) {
    const size_t n = std::min(a.period, a.n - begin);
    const float* x = a.in[0] + begin;
    ULP_LOOP for (size_t i = 0; i < n; ++i) {
      const float d = x[i] - mean[i];
      out[i] += d * d;
    }
  }
}

void sum_gradients(const SumArgs& a) {
  float *sum = a.out[0], *product = a.out[1];
  const float *mean = a.param[0], *inv = a.param[1];
  std::fill(sum, sum + a.period, 0.0f);
  std::fill(product, product + a.period, 0.0f);
  for (size_t begin = 0; begin < a.n; begin += a.period) {
    const size_t n = std::min(a.period, a.n - begin);
    const float *dout = a.in[0] + begin, *x = a.in[1] + begin;
    ULP_LOOP for (size_t i = 0; i < n; ++i) {
      sum[i] += dout[i];
      product[i] += dout[i] * ((x[i] - mean[i]) * inv[i]);
    }
  }
}

void fold(const float* period_sums, size_t period, size_t channels, double* sums) {
  for (size_t begin = 0; begin < period; begin += channels) {
    ULP_LOOP for (size_t c = 0; c < channels; ++c) sums[c] += static_cast<double>(period_sums[begin + c]);
  }
}

struct NamedLoop {
  std::string_view op;
  StageLoop loop;
};
constexpr NamedLoop kLoops[] = {
    {"dropout", dropout},
    {"dropout_grad", dropout},
    {"sum", sum},
    {"copy", copy},
    {"seed", seed},
    {"batch_norm", batch_norm},
    {"batch_norm_grad", batch_norm_grad},
};

StageLoop find_loop(std::string_view op) {
  StageLoop found = nullptr;
  el::Activations::for_each([&]<typename Op>(Op) {
    if (op == Op::kName) found = forward<Op>;
    if (op == Op::kGradName) found = backward<Op>;
  });
  el::Binaries::for_each([&]<typename Op>(Op) {
    if (op == Op::kName) found = binary<Op>;
  });
  if (found != nullptr) return found;
  for (const NamedLoop& entry : kLoops) {
    if (entry.op == op) return entry.loop;
  }
  return nullptr;
}

}  // namespace ulp::blocks::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::blocks {

HWY_EXPORT(find_loop);
HWY_EXPORT(sum_rows);
HWY_EXPORT(sum_squares);
HWY_EXPORT(sum_gradients);
HWY_EXPORT(fold);

StageLoop stage_loop(std::string_view op) { return HWY_DYNAMIC_DISPATCH(find_loop)(op); }
void sum_rows(const SumArgs& args) { HWY_DYNAMIC_DISPATCH(sum_rows)(args); }
void sum_squares(const SumArgs& args) { HWY_DYNAMIC_DISPATCH(sum_squares)(args); }
void sum_gradients(const SumArgs& args) { HWY_DYNAMIC_DISPATCH(sum_gradients)(args); }
void fold(const float* period_sums, size_t period, size_t channels, double* sums) {
  HWY_DYNAMIC_DISPATCH(fold)(period_sums, period, channels, sums);
}

}  // namespace ulp::blocks
#endif  // HWY_ONCE
