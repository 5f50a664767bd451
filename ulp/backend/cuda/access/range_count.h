// Counting range events in a kernel: what one thread saw, and how threads add it to a tensor's
// statistics. Only sums and a maximum, so the order of threads and blocks does not matter. Only for
// files compiled as kernels.
#pragma once

#include "ulp/numeric/scalar.h"
#include "ulp/numeric/stats.h"

namespace ulp::cuda {

// Whether x becomes 0 and is not 0. `vanishing` is twice the pattern of the largest magnitude that
// becomes 0; the pattern of 0 wraps around.
__device__ inline bool vanishes(float x, uint32_t vanishing) { return 2 * float_bits(x) - 1 < vanishing; }

// The range events that one thread counted.
struct RangeCount {
  uint32_t overflow = 0, underflow = 0, nan = 0, amax = 0;  // amax is an fp32 pattern

  __device__ void add(const Encoded& made, uint32_t pattern) {
    const uint32_t magnitude = pattern & 0x7FFFFFFFu;
    overflow += made.event == RangeEvent::overflow ? 1 : 0;
    underflow += made.event == RangeEvent::underflow ? 1 : 0;
    nan += made.event == RangeEvent::nan ? 1 : 0;
    const bool number = magnitude <= 0x7F800000u;
    amax = number && magnitude > amax ? magnitude : amax;
  }
  // For values whose events are counted otherwise: their largest magnitude, not NaN.
  __device__ void add_most(uint32_t pattern) { amax = pattern > amax ? pattern : amax; }
  __device__ void add_most(float most) { add_most(float_bits(most)); }
  __device__ void add_vanished(float x, uint32_t vanishing) { underflow += vanishes(x, vanishing) ? 1 : 0; }

  __device__ void merge(const RangeCount& other) {
    overflow += other.overflow;
    underflow += other.underflow;
    nan += other.nan;
    add_most(other.amax);
  }

  // Adds the counts to the tensor's statistics. One thread of several calls it, with their sum.
  __device__ void flush(EncodeStats& stats) const {
    const auto sum = [](uint64_t& to, uint32_t count) {
      if (count != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(&to), static_cast<unsigned long long>(count));
    };
    sum(stats.overflow, overflow);
    sum(stats.underflow, underflow);
    sum(stats.nan, nan);
    if (amax != 0) atomicMax(reinterpret_cast<unsigned int*>(&stats.amax), static_cast<unsigned int>(amax));
  }
};

__device__ inline uint32_t warp_sum(uint32_t x) { return __reduce_add_sync(0xFFFFFFFFu, x); }
__device__ inline uint32_t warp_max(uint32_t x) { return __reduce_max_sync(0xFFFFFFFFu, x); }
__device__ inline RangeCount warp_sum(const RangeCount& x) {
  return {warp_sum(x.overflow), warp_sum(x.underflow), warp_sum(x.nan), warp_max(x.amax)};
}

// Adds the counts of a block's threads to the tensor's statistics. All threads of the block must
// call it; their number must be a multiple of 32.
__device__ inline void report(const RangeCount& mine, EncodeStats* stats) {
  if (stats == nullptr) return;  // the same for all threads
  __shared__ uint32_t warps[4][32];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = blockDim.x / 32;
  const RangeCount own = warp_sum(mine);
  if (lane == 0) {
    warps[0][warp] = own.overflow;
    warps[1][warp] = own.underflow;
    warps[2][warp] = own.nan;
    warps[3][warp] = own.amax;
  }
  __syncthreads();
  if (warp == 0) {
    RangeCount all;
    if (lane < count) all = {warps[0][lane], warps[1][lane], warps[2][lane], warps[3][lane]};
    all = warp_sum(all);
    if (lane == 0) all.flush(*stats);
  }
  __syncthreads();
}

// The same for the threads of one warp, all of which must call it.
__device__ inline void report_warp(const RangeCount& mine, EncodeStats* stats) {
  if (stats == nullptr) return;
  const RangeCount all = warp_sum(mine);
  if (threadIdx.x % 32 == 0) all.flush(*stats);
}

// The same for whichever threads of a warp are active. For slow paths: in a tensor that overflows
// everywhere, one atomic per thread would wait for all others.
__device__ inline void report_now(const RangeCount& seen, EncodeStats* stats) {
  if (stats == nullptr) return;
  RangeCount all = seen;
#if defined(__CUDA_ARCH__)
  const uint32_t here = __activemask();
  all = {__reduce_add_sync(here, seen.overflow), __reduce_add_sync(here, seen.underflow),
         __reduce_add_sync(here, seen.nan), __reduce_max_sync(here, seen.amax)};
  if ((here & ((1u << threadIdx.x % 32) - 1)) != 0) return;  // a lower lane reports
#endif
  // The maximum only grows: no atomic is needed if it is large enough already.
  const volatile float& most = stats->amax;
  if (all.amax <= float_bits(most)) all.amax = 0;
  all.flush(*stats);
}

}  // namespace ulp::cuda
