#include "ulp/backend/cuda/ops/skinny_gemm.h"

#include "ulp/backend/cuda/access/single.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {
namespace {

template <bool kHalves>
__device__ inline float number_at(const void* data, uint32_t i) {
  if constexpr (kHalves) {
    return bits_float(uint32_t{static_cast<const uint16_t*>(data)[i]} << 16);
  } else {
    return static_cast<const float*>(data)[i];
  }
}

// One warp per result.
template <bool kHalves>
__global__ void __launch_bounds__(kThreads) multiply_rows(const __grid_constant__ SkinnyCall c) {
  RangeCount seen;
  const SkinnyShape d = c.shape;
  const auto* weight = static_cast<const float*>(c.b);
  const uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (uint32_t at = blockIdx.x * warps + threadIdx.x / 32; at < d.rows * d.out; at += gridDim.x * warps) {
    const uint32_t row = at / d.out, column = at - row * d.out;
    float sum = 0;
#pragma unroll 8
    for (uint32_t i = lane; i < d.in; i += 32)
      sum += number_at<kHalves>(c.a, row * d.in + i) * weight[column * d.in + i];
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, mask);
    if (lane != 0) continue;
    if (c.bias != nullptr) sum += c.bias[column];
    store_single(c.result, *c.state, at, settle_nan(sum), seen);
  }
  report(seen, c.result.stats);
}

// One thread per result: there are few outputs.
template <bool kHalves>
__global__ void __launch_bounds__(kThreads) multiply_back(const __grid_constant__ SkinnyCall c) {
  RangeCount seen;
  const SkinnyShape d = c.shape;
  const auto* weight = static_cast<const float*>(c.b);
  for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < d.rows * d.in;
       at += gridDim.x * blockDim.x) {
    const uint32_t row = at / d.in, i = at - row * d.in;
    float sum = 0;
#pragma unroll 8
    for (uint32_t o = 0; o < d.out; ++o)
      sum += number_at<kHalves>(c.a, row * d.out + o) * weight[o * d.in + i];
    store_single(c.result, *c.state, at, settle_nan(sum), seen);
  }
  report(seen, c.result.stats);
}

// One block per 32 neighbouring results; each of its warps has every 32nd row.
constexpr uint32_t kSlices = 32;

template <bool kHalves>
__global__ void __launch_bounds__(32 * kSlices) multiply_columns(const __grid_constant__ SkinnyCall c) {
  __shared__ float slices[kSlices][32];
  RangeCount seen;
  const SkinnyShape d = c.shape;
  const uint32_t lane = threadIdx.x % 32, slice = threadIdx.x / 32;
  const uint32_t tiles = (d.in + 31) / 32, o = blockIdx.x / tiles, i = blockIdx.x % tiles * 32 + lane;
  float sum = 0;
  if (i < d.in) {
#pragma unroll 8
    for (uint32_t row = slice; row < d.rows; row += kSlices)
      sum += number_at<kHalves>(c.a, row * d.in + i) * number_at<kHalves>(c.b, row * d.out + o);
  }
  slices[slice][lane] = sum;
  __syncthreads();
  if (slice == 0 && i < d.in) {
    sum = 0;
#pragma unroll 8
    for (uint32_t k = 0; k < kSlices; ++k) sum += slices[k][lane];
    store_single(c.result, *c.state, uint64_t{o} * d.in + i, settle_nan(sum), seen);
  }
  report(seen, c.result.stats);
}

}  // namespace

bool skinny_writes(const WriteView& view) { return by_singles(view); }

void skinny_linear(const SkinnyCall& call, Stream stream) {
  launch(call.halves ? multiply_rows<true> : multiply_rows<false>,
         {blocks_for(uint64_t{call.shape.rows} * call.shape.out * 32), kThreads}, stream, call);
}

void skinny_linear_grad_input(const SkinnyCall& call, Stream stream) {
  launch(call.halves ? multiply_back<true> : multiply_back<false>,
         {blocks_for(uint64_t{call.shape.rows} * call.shape.in), kThreads}, stream, call);
}

void skinny_linear_grad_weight(const SkinnyCall& call, Stream stream) {
  launch(call.halves ? multiply_columns<true> : multiply_columns<false>,
         {call.shape.out * ((call.shape.in + 31) / 32), 32 * kSlices}, stream, call);
}

}  // namespace ulp::cuda
