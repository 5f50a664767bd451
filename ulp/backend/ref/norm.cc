// Batch norm and layer norm.
#include <cmath>

#include "ulp/backend/elementwise.h"
#include "ulp/backend/ref/reference_task.h"

namespace ulp::ref {
namespace {

int64_t rows_of(const Shape& shape) { return static_cast<int64_t>(shape.rows()); }

// The mean first, then the squares of what is left: no cancellation.
void batch_stats(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const float* x = call.in(0);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < rows; ++r) sum += x[r * channels + c];
    const double mean = sum / static_cast<double>(rows);
    for (int64_t r = 0; r < rows; ++r) {
      const double rest = x[r * channels + c] - mean;
      squares += rest * rest;
    }
    call.out(0)[c] = rounded(mean);
    call.out(1)[c] = rounded(squares / static_cast<double>(rows));
  }
}

void batch_track(const Call& call) {
  const double momentum = call.real("momentum");
  const auto fresh = static_cast<float>(momentum), keep = static_cast<float>(1 - momentum);
  const float unbias = elementwise::batch_unbias(call.real("rows"));
  for (int64_t c = 0; c < call.in_shape(0).back(); ++c) {
    float &mean = call.out(0)[c], &variance = call.out(1)[c];
    mean = elementwise::batch_track(mean, call.in(0)[c], keep, fresh);
    variance = elementwise::batch_track(variance, elementwise::Multiply::forward(call.in(1)[c], unbias), keep,
                                        fresh);
  }
}

void batch_norm(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const auto epsilon = static_cast<float>(call.real("epsilon"));
  const float *x = call.in(0), *gamma = call.in(1), *beta = call.in(2), *mean = call.in(3),
              *variance = call.in(4);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; ++c) {
      const float scale =
          elementwise::Multiply::forward(gamma[c], elementwise::batch_inv(variance[c], epsilon));
      call.out()[r * channels + c] = elementwise::batch_norm(x[r * channels + c], mean[c], scale, beta[c]);
    }
  }
}

void batch_norm_sums(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const auto epsilon = static_cast<float>(call.real("epsilon"));
  const float *dout = call.in(0), *x = call.in(1), *mean = call.in(2), *variance = call.in(3);
  for (int64_t c = 0; c < channels; ++c) {
    const double inv = elementwise::batch_inv(variance[c], epsilon);
    double sum = 0, product = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double d = dout[r * channels + c];
      sum += d;
      product += d * (static_cast<double>(x[r * channels + c]) - mean[c]);
    }
    call.out(0)[c] = rounded(sum);
    call.out(1)[c] = rounded(product * inv);
  }
}

void batch_norm_grad(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const auto epsilon = static_cast<float>(call.real("epsilon")), n = static_cast<float>(call.real("rows"));
  const float *dout = call.in(0), *x = call.in(1), *gamma = call.in(2), *mean = call.in(3),
              *variance = call.in(4);
  const float *sum = call.in(5), *product = call.in(6);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; ++c) {
      const float inv = elementwise::batch_inv(variance[c], epsilon);
      call.out()[r * channels + c] = elementwise::batch_norm_grad(
          dout[r * channels + c], x[r * channels + c], mean[c], inv,
          elementwise::Multiply::forward(gamma[c], inv), elementwise::batch_mean(sum[c], n),
          elementwise::batch_mean(product[c], n));
    }
  }
}

// Rounded once: the output is made from the mean and variance in double, not from those that are
// kept.
void layer_norm(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const double epsilon = call.real("epsilon");
  const float *gamma = call.in(1), *beta = call.in(2);
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = call.in(0) + r * channels;
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < channels; ++c) sum += x[c];
    const double mean = sum / static_cast<double>(channels);
    for (int64_t c = 0; c < channels; ++c) squares += (x[c] - mean) * (x[c] - mean);
    const double variance = squares / static_cast<double>(channels);
    const double inv = 1 / std::sqrt(variance + epsilon);
    for (int64_t c = 0; c < channels; ++c) {
      call.out(0)[r * channels + c] = rounded((x[c] - mean) * inv * gamma[c] + beta[c]);
    }
    call.out(1)[r] = rounded(mean);
    call.out(2)[r] = rounded(variance);
  }
}

// With u = (x - mean) inv and g = dout gamma: dx = inv (g - mean of g - u (mean of g u)), means
// over the row.
void layer_norm_grad(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const double epsilon = call.real("epsilon"), n = static_cast<double>(channels);
  const float* gamma = call.in(2);
  for (int64_t r = 0; r < rows; ++r) {
    const float *dout = call.in(0) + r * channels, *x = call.in(1) + r * channels;
    const double mean = call.in(3)[r], inv = 1 / std::sqrt(call.in(4)[r] + epsilon);
    double sum = 0, product = 0;
    for (int64_t c = 0; c < channels; ++c) {
      const double g = static_cast<double>(dout[c]) * gamma[c];
      sum += g;
      product += g * (x[c] - mean) * inv;
    }
    for (int64_t c = 0; c < channels; ++c) {
      const double g = static_cast<double>(dout[c]) * gamma[c];
      call.out()[r * channels + c] = rounded(inv * (g - sum / n - (x[c] - mean) * inv * (product / n)));
    }
  }
}

void layer_norm_grad_weight(const Call& call) {
  const int64_t rows = rows_of(call.in_shape(0)), channels = call.in_shape(0).back();
  const double epsilon = call.real("epsilon");
  const float *dout = call.in(0), *x = call.in(1), *mean = call.in(2), *variance = call.in(3);
  for (int64_t c = 0; c < channels; ++c) {
    double dgamma = 0, dbeta = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double d = dout[r * channels + c];
      dgamma += d * (static_cast<double>(x[r * channels + c]) - mean[r]) / std::sqrt(variance[r] + epsilon);
      dbeta += d;
    }
    call.out(0)[c] = rounded(dgamma);
    call.out(1)[c] = rounded(dbeta);
  }
}

}  // namespace

std::span<const KernelDef> norm_kernels() {
  static constexpr KernelDef kKernels[] = {
      reference_kernel<batch_stats>("batch_stats"),
      reference_kernel<batch_track, Outputs::in_place>("batch_track"),
      reference_elementwise<batch_norm>("batch_norm"),
      reference_kernel<batch_norm_sums>("batch_norm_sums"),
      reference_elementwise<batch_norm_grad>("batch_norm_grad"),
      reference_kernel<layer_norm>("layer_norm"),
      reference_kernel<layer_norm_grad>("layer_norm_grad"),
      reference_kernel<layer_norm_grad_weight>("layer_norm_grad_weight"),
  };
  return kKernels;
}

}  // namespace ulp::ref
