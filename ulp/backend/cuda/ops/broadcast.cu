#include "ulp/backend/cuda/ops/broadcast.h"

#include "ulp/backend/cuda/access/index.h"
#include "ulp/backend/cuda/runtime/launch.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {
namespace {

__device__ inline uint64_t place_of(const Walk& walk, uint64_t at) {
  uint64_t from = 0;
#pragma unroll
  for (int axis = 3; axis >= 0; --axis) {
    const Divided d = divide(at, walk.extent[axis]);
    from += d.rest * walk.stride[axis];
    at = d.quotient;
  }
  return from;
}

__global__ void add_repeated(Walk a_walk, Walk b_walk, uint64_t elements, const float* a, const float* b,
                             float* out) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < elements;
       i += uint64_t{gridDim.x} * blockDim.x)
    out[i] = settle_nan(a[place_of(a_walk, i)] + b[place_of(b_walk, i)]);
}

// A block for each element, in turn. The threads' parts are added in pairs.
__global__ void sum_repeated(BroadcastSum d, const float* dout, float* dx) {
  __shared__ double part[kThreads];
  for (uint64_t i = blockIdx.x; i < d.elements; i += gridDim.x) {
    const float* first = dout + place_of(d.kept, i);
    double sum = 0;
    for (uint64_t k = threadIdx.x; k < d.repetitions; k += blockDim.x)
      sum += static_cast<double>(first[place_of(d.repeated, k)]);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) dx[i] = settle_nan(static_cast<float>(part[0]));
    __syncthreads();
  }
}

}  // namespace

void broadcast_add(const Walk& a_walk, const Walk& b_walk, uint64_t elements, const float* a, const float* b,
                   float* out, Stream stream) {
  launch(add_repeated, {blocks_for(elements), kThreads}, stream, a_walk, b_walk, elements, a, b, out);
}

void broadcast_sum(const BroadcastSum& sum, const float* dout, float* dx, Stream stream) {
  uint32_t threads = kThreads;
  while (threads > 32 && threads / 2 >= sum.repetitions) threads /= 2;
  launch(sum_repeated, {blocks_for(sum.elements, 1), threads}, stream, sum, dout, dx);
}

}  // namespace ulp::cuda
