#include "tests/cuda/naive_conv.h"

#include <cuda_runtime.h>

namespace ulp::cuda {
namespace {

__global__ void naive_kernel(const __grid_constant__ IgemmPart part, uint32_t weight_taps, bool transposed,
                             const float* x, const float* weight, float* out, float* magnitude) {
  const IgemmShape& s = part.shape;
  const uint64_t elements = s.results() * s.out_c, step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t e = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; e < elements; e += step) {
    const uint32_t n = static_cast<uint32_t>(e % s.out_c), q = static_cast<uint32_t>(e / s.out_c % s.out_w);
    const uint32_t p = static_cast<uint32_t>(e / s.out_c / s.out_w % s.out_h);
    const uint64_t image = e / s.out_c / s.out_w / s.out_h;
    double sum = 0, all = 0;
    for (uint32_t tap = 0; tap < s.taps(); ++tap) {
      const int64_t row = int64_t{p} * s.stride_h + s.row[tap / s.columns];
      const int64_t column = int64_t{q} * s.stride_w + s.column[tap % s.columns];
      if (row < 0 || column < 0 || row >= s.in_h || column >= s.in_w) continue;
      for (uint32_t c = 0; c < s.in_c; ++c) {
        const uint64_t from = ((image * s.in_h + row) * s.in_w + column) * s.in_c + c;
        const uint64_t by = transposed ? (uint64_t{c} * weight_taps + part.source[tap]) * s.out_c + n
                                       : (uint64_t{n} * weight_taps + part.source[tap]) * s.in_c + c;
        const double product = static_cast<double>(x[from]) * weight[by];
        sum += product;
        all += fabs(product);
      }
    }
    const uint64_t pixel =
        (image * s.full_h + p * s.step_h + s.first_h) * s.full_w + q * s.step_w + s.first_w;
    out[pixel * s.out_c + n] = static_cast<float>(sum);
    magnitude[pixel * s.out_c + n] = static_cast<float>(all);
  }
}

__global__ void naive_grad_kernel(const __grid_constant__ IgemmShape s, const float* x, const float* grad,
                                  double* out, double* magnitude) {
  const uint64_t elements = uint64_t{s.out_c} * s.taps() * s.in_c, step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t e = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; e < elements; e += step) {
    const uint32_t c = static_cast<uint32_t>(e % s.in_c), tap = static_cast<uint32_t>(e / s.in_c % s.taps());
    const uint64_t n = e / s.in_c / s.taps();
    double sum = 0, all = 0;
    for (uint64_t result = 0; result < s.results(); ++result) {
      const int64_t row =
          static_cast<int64_t>(result / s.out_w % s.out_h) * s.stride_h + s.row[tap / s.columns];
      const int64_t column = static_cast<int64_t>(result % s.out_w) * s.stride_w + s.column[tap % s.columns];
      if (row < 0 || column < 0 || row >= s.in_h || column >= s.in_w) continue;
      const uint64_t image = result / s.out_w / s.out_h;
      const double product = static_cast<double>(x[((image * s.in_h + row) * s.in_w + column) * s.in_c + c]) *
                             grad[result * s.out_c + n];
      sum += product;
      all += fabs(product);
    }
    out[e] = sum;
    magnitude[e] = all;
  }
}

}  // namespace

void naive_part(const IgemmPart& part, uint32_t weight_taps, bool transposed, const float* x,
                const float* weight, float* out, float* magnitude) {
  naive_kernel<<<1024, 128>>>(part, weight_taps, transposed, x, weight, out, magnitude);
}

void naive_grad(const IgemmShape& shape, const float* x, const float* grad, double* out, double* magnitude) {
  naive_grad_kernel<<<1024, 128>>>(shape, x, grad, out, magnitude);
}

}  // namespace ulp::cuda
