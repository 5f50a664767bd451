// Softmax, losses, counting.
#include <cmath>

#include "ulp/backend/ref/reference_task.h"
#include "ulp/base/error.h"

namespace ulp::ref {
namespace {

int64_t rows_of(const Shape& shape) { return static_cast<int64_t>(shape.rows()); }

// The logarithm of a row's sum of e^x, in two parts: the largest x is taken out first, so that
// nothing overflows, and is kept apart, since beside a large one the other part would vanish.
struct LogSum {
  double largest = 0, rest = 0;
  double log_p(float x) const { return (x - largest) - rest; }
};

LogSum log_sum_exp(const float* x, int64_t n) {
  double largest = x[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
  return {largest, std::log(sum)};
}

double sum_of(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

void softmax(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < rows_of(call.out_shape()); ++r) {
    const float* x = call.in(0) + r * n;
    const LogSum log_sum = log_sum_exp(x, n);
    for (int64_t i = 0; i < n; ++i) call.out()[r * n + i] = rounded(std::exp(log_sum.log_p(x[i])));
  }
}

void softmax_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < rows_of(call.out_shape()); ++r) {
    const float *dout = call.in(0) + r * n, *out = call.in(1) + r * n;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(dout[i]) * out[i];
    for (int64_t i = 0; i < n; ++i) call.out()[r * n + i] = rounded(out[i] * (dout[i] - sum));
  }
}

void log_softmax(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < rows_of(call.out_shape()); ++r) {
    const float* x = call.in(0) + r * n;
    const LogSum log_sum = log_sum_exp(x, n);
    for (int64_t i = 0; i < n; ++i) call.out()[r * n + i] = rounded(log_sum.log_p(x[i]));
  }
}

void log_softmax_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  for (int64_t r = 0; r < rows_of(call.out_shape()); ++r) {
    const float *dout = call.in(0) + r * n, *out = call.in(1) + r * n;
    const double sum = sum_of(dout, n);
    for (int64_t i = 0; i < n; ++i) {
      call.out()[r * n + i] = rounded(dout[i] - std::exp(static_cast<double>(out[i])) * sum);
    }
  }
}

// The label of example r, one of n classes.
int64_t label_of(const Call& call, size_t input, int64_t r, int64_t n) {
  const int64_t label = call.indices(input)[r];
  if (label < 0 || label >= n) {
    fail("backend", "{}: label {} of example {} is none of the classes 0 to {}", call.node.name, label, r,
         n - 1);
  }
  return label;
}

// What a smoothed label puts on each class.
struct Smoothed {
  double rest;  // on every class
  double top;   // on the label in addition
  Smoothed(const Call& call, int64_t classes)
      : rest(call.real("smoothing") / static_cast<double>(classes)), top(1 - call.real("smoothing")) {}
  double at(int64_t i, int64_t label) const { return rest + (i == label ? top : 0); }
};

// A class of no weight is left out: its logarithm may be infinite.
double smoothed_loss(const float* x, const LogSum& log_sum, int64_t n, int64_t label,
                     const Smoothed& weight) {
  double loss = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (const double w = weight.at(i, label); w != 0) loss -= w * log_sum.log_p(x[i]);
  }
  return loss;
}

void nll(const Call& call) {
  const int64_t n = call.in_shape(0).back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < rows_of(call.in_shape(0)); ++r) {
    call.out()[r] = rounded(smoothed_loss(call.in(0) + r * n, {}, n, label_of(call, 1, r, n), weight));
  }
}

void nll_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < rows_of(call.out_shape()); ++r) {
    const int64_t label = label_of(call, 1, r, n);
    for (int64_t i = 0; i < n; ++i) {
      call.out()[r * n + i] = rounded(-call.in(0)[r] * weight.at(i, label));
    }
  }
}

void cross_entropy(const Call& call) {
  const int64_t n = call.in_shape(0).back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < rows_of(call.in_shape(0)); ++r) {
    const float* x = call.in(0) + r * n;
    call.out()[r] = rounded(smoothed_loss(x, log_sum_exp(x, n), n, label_of(call, 1, r, n), weight));
  }
}

void cross_entropy_grad(const Call& call) {
  const int64_t n = call.out_shape().back();
  const Smoothed weight(call, n);
  for (int64_t r = 0; r < rows_of(call.out_shape()); ++r) {
    const float* x = call.in(1) + r * n;
    const LogSum log_sum = log_sum_exp(x, n);
    const int64_t label = label_of(call, 2, r, n);
    for (int64_t i = 0; i < n; ++i) {
      call.out()[r * n + i] = rounded(call.in(0)[r] * (std::exp(log_sum.log_p(x[i])) - weight.at(i, label)));
    }
  }
}

// Losses against a target: the mean over an example of term(x, t), and its derivative.
template <double (*term)(double, double)>
void target_loss(const Call& call) {
  const int64_t examples = call.in_shape(0)[0];
  const int64_t n = static_cast<int64_t>(call.in_shape(0).elements()) / examples;
  for (int64_t r = 0; r < examples; ++r) {
    double sum = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i) sum += term(call.in(0)[i], call.in(1)[i]);
    call.out()[r] = rounded(sum / static_cast<double>(n));
  }
}

template <double (*slope)(double, double)>
void target_loss_grad(const Call& call) {
  const int64_t examples = call.out_shape()[0];
  const int64_t n = static_cast<int64_t>(call.elements()) / examples;
  for (int64_t i = 0; i < examples * n; ++i) {
    const double d = slope(call.in(1)[i], call.in(2)[i]);
    call.out()[i] = rounded(call.in(0)[i / n] * d / static_cast<double>(n));
  }
}

double square(double x, double t) { return (x - t) * (x - t); }
double square_slope(double x, double t) { return 2 * (x - t); }

// log(1 + e^x) as the positive part of x and the logarithm of what lies between 1 and 2.
double logit_loss(double x, double t) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))) - x * t; }
double logit_slope(double x, double t) { return 1 / (1 + std::exp(-x)) - t; }

// A row with a NaN has no largest score.
void classify(const Call& call) {
  const int64_t n = call.in_shape(0).back(), examples = call.in_shape(0)[0];
  int64_t right = 0;
  for (int64_t r = 0; r < examples; ++r) {
    const float* score = call.in(0) + r * n;
    const int64_t label = label_of(call, 1, r, n);
    bool largest = true;
    for (int64_t i = 0; i < n; ++i) {
      largest = largest && (i < label ? score[label] > score[i] : score[label] >= score[i]);
    }
    right += largest ? 1 : 0;
  }
  call.out()[0] = rounded(sum_of(call.in(2), examples));
  call.out()[1] = rounded(right);
}

void loss_sum(const Call& call) {
  const auto n = static_cast<int64_t>(call.in_shape(0).elements());
  if (call.node.in.size() == 1) {
    call.out()[0] = rounded(sum_of(call.in(0), n));
    return;
  }
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{call.in(0)[i]} * double{call.in(1)[i]};
  call.out()[0] = rounded(sum);
}

}  // namespace

std::span<const KernelDef> loss_kernels() {
  static constexpr KernelDef kKernels[] = {
      reference_kernel<softmax>("softmax"),
      reference_kernel<softmax_grad>("softmax_grad"),
      reference_kernel<log_softmax>("log_softmax"),
      reference_kernel<log_softmax_grad>("log_softmax_grad"),
      reference_kernel<nll>("nll"),
      reference_kernel<nll_grad>("nll_grad"),
      reference_kernel<cross_entropy>("cross_entropy"),
      reference_kernel<cross_entropy_grad>("cross_entropy_grad"),
      reference_kernel<target_loss<square>>("mse"),
      reference_kernel<target_loss_grad<square_slope>>("mse_grad"),
      reference_kernel<target_loss<logit_loss>>("bce_with_logits"),
      reference_kernel<target_loss_grad<logit_slope>>("bce_with_logits_grad"),
      reference_kernel<classify>("classify"),
      reference_kernel<loss_sum>("loss_sum"),
  };
  return kKernels;
}

}  // namespace ulp::ref
