// Batch norm's reductions in one launch. Each thread sums eight channels over its pixels in fp32. A
// block combines its threads' sums into a row of partial results. The last block of a slice to
// finish combines the rows, finally in double. The order depends on the shape alone.
#include "ulp/backend/cuda/batchnorm/batchnorm_reduce.h"

namespace ulp::cuda {
namespace {

// Counts of finished blocks per slice. The last block resets its count to 0. Reductions on one
// stream run one after the other; concurrent ones must not share a ticket.
constexpr uint32_t kTickets = 256;
__device__ uint32_t finished[kTickets][SliceSpread::kMostSlices];

// Whether this block is the last of its slice. All threads of the block must call it.
__device__ inline bool is_last(const SumArgs& a) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t slice = blockIdx.x - a.spread.by_slices(blockIdx.x) * a.spread.slices;
    uint32_t* count = &finished[a.ticket % kTickets][slice];
    last = count_up(count, 1) + 1 == a.spread.rows;
    if (last) *count = 0;
  }
  __syncthreads();
  return last;
}

// Combines the rows of a slice, in its last block.
template <bool kMoments>
__device__ inline void write_sums(const SumArgs& a, float* shared, const float* pivots) {
  const uint32_t slice = blockIdx.x - a.spread.by_slices(blockIdx.x) * a.spread.slices;
  const uint32_t wide = a.spread.width * kGroup;
  const uint32_t c = slice * wide + threadIdx.x;  // of the first threads
  // Loads what is needed last together with the rows.
  float before[2] = {}, variance = 0, made[2];
  uint32_t micro_batch = 0;
  if (threadIdx.x < wide) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (a.out[i].sums) before[i] = a.out[i].data[c];
    }
    if (a.out[0].sums || a.out[1].sums) micro_batch = a.state->micro_batch;
    if constexpr (!kMoments) variance = a.variance[c];
  }
  reduce_rows<kMoments>(a, shared, pivots, variance, made);
  if (threadIdx.x >= wide) return;
#pragma unroll
  for (int i = 0; i < 2; ++i) a.out[i].write(c, micro_batch, before[i], made[i]);
}

template <Code kCode>
__global__ void __launch_bounds__(kSumThreads, 2) run_stats(const __grid_constant__ SumArgs a) {
  __align__(16) __shared__ float shared[kSums * kSumThreads];
  __align__(16) __shared__ float pivots[SliceSpread::kWidest * kGroup];
  constexpr int kAtOnce = 4;
  const SliceSpread& spread = a.spread;
  const uint32_t row = spread.by_slices(blockIdx.x), slice = blockIdx.x - row * spread.slices;
  const uint32_t slot = spread.by_width(threadIdx.x), side = threadIdx.x - slot * spread.width;
  const uint32_t end = spread.pixels * spread.period, step = spread.rows * spread.slots * spread.period;
  uint32_t group = (row * spread.slots + slot) * spread.period + slice * spread.width + side;
  if (slot >= spread.slots) group = end;
  Packed<kCode> raw[kAtOnce] = {};
  const auto load = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      raw[u] = load_packed<kCode>(a.x, nearest(group + static_cast<uint32_t>(u) * step, end));
    }
  };
  if (group < end) load();
  if (slot == 0) choose_pivots<kCode>(a, slice * spread.width + side, pivots + side * kGroup);
  __syncthreads();
  float pivot[8], first[8] = {}, second[8] = {};
  take_eight(pivots + side * kGroup, pivot);
  while (group < end) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (group + static_cast<uint32_t>(u) * step >= end) break;
      float x[8];
      unpack_any<kCode>(a.x_codec, a.x_reading, raw[u], a.drop, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float rest = x[i] - pivot[i];
        first[i] += rest;
        second[i] = fmaf(rest, rest, second[i]);
      }
    }
    group += kAtOnce * step;
    if (group < end) load();
  }
  reduce_threads(a, shared, first, second);
  if (is_last(a)) write_sums<true>(a, shared, pivots);
}

// Without an activation kMask is kSaved.
template <Code kGrad, Code kMask, Code kSaved, bool kMasked>
__global__ void __launch_bounds__(kSumThreads, 2) run_sums(const __grid_constant__ SumArgs a) {
  __align__(16) __shared__ float shared[kSums * kSumThreads];
  constexpr int kAtOnce = sums_at_once<kGrad, kMask, kSaved, kMasked>();
  const SliceSpread& spread = a.spread;
  const uint32_t row = spread.by_slices(blockIdx.x), slice = blockIdx.x - row * spread.slices;
  const uint32_t slot = spread.by_width(threadIdx.x), side = threadIdx.x - slot * spread.width;
  const uint32_t end = spread.pixels * spread.period, step = spread.rows * spread.slots * spread.period;
  uint32_t group = (row * spread.slots + slot) * spread.period + slice * spread.width + side;
  if (slot >= spread.slots) group = end;
  Packed<kGrad> dout[kAtOnce] = {};
  Packed<kMask> mask[kAtOnce] = {};
  Packed<kSaved> saved[kAtOnce] = {};
  const auto load = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = nearest(group + static_cast<uint32_t>(u) * step, end);
      dout[u] = load_packed<kGrad>(a.dout, g);
      if constexpr (kMasked) mask[u] = load_packed<kMask>(a.mask, g);
      saved[u] = load_packed<kSaved>(a.x, g);
    }
  };
  if (group < end) load();
  float mean[8], first[8] = {}, second[8] = {};
  take_eight(a.mean + (slice * spread.width + side) * kGroup, mean);
#pragma unroll
  for (int i = 0; i < 8; ++i) mean[i] = mean[i] * a.drop;
  uint32_t most_masked = 0;
  while (group < end) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (group + static_cast<uint32_t>(u) * step >= end) break;
      float y[8], x[8];
      if constexpr (kMasked) {
        keep_positive<kGrad, kMask>(dout[u], mask[u]);
        unpack_units<kGrad>(dout[u], a.dout_reading, y);
        const uint32_t here = most_of<kGrad, true>(0, dout[u]);
        if (most_code<kGrad>(here) > a.top) {
          round_masked<kGrad>(a, dout[u], y);
        } else {
          most_masked = larger_halves(most_masked, here);
        }
      } else {
        unpack_any<kGrad>(a.dout_codec, a.dout_reading, dout[u], 1, y);
      }
      unpack_any<kSaved>(a.x_codec, a.x_reading, saved[u], a.drop, x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        first[i] += y[i];
        second[i] = fmaf(y[i], x[i] - mean[i], second[i]);
      }
    }
    group += kAtOnce * step;
    if (group < end) load();
  }
  __shared__ uint32_t most[kSumThreads / 32];
  if constexpr (kMasked) {
    const uint32_t mine = warp_max(most_code<kGrad>(most_masked));
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = mine;
  }
  reduce_threads(a, shared, first, second);
  const bool last = is_last(a);
  if constexpr (kMasked) {
    if (a.masked_stats != nullptr && threadIdx.x / 32 == kSumThreads / 32 - 1) {
      // The order of codes is the order of their values.
      const uint32_t all = warp_max(threadIdx.x % 32 < kSumThreads / 32 ? most[threadIdx.x % 32] : 0);
      if (threadIdx.x % 32 == 0) RangeCount{0, 0, 0, number_of(a.masked, all)}.flush(*a.masked_stats);
    }
  }
  if (last) write_sums<false>(a, shared, nullptr);
}

template <bool kMasked>
bool launch_sums(const FusedCall& call, Stream stream) {
  SumArgs a{};
  if (!take_norm_sums<kMasked>(call, a)) return false;
  const Code grad = code_of(call.leaf[0]), saved = code_of(call.leaf[kMasked ? 2 : 1]),
             above = kMasked ? code_of(call.leaf[1]) : saved;
  const Grid grid{a.spread.rows * a.spread.slices, kSumThreads};
  const auto run = [&]<Code kGrad, Code kMask, Code kSaved> {
    launch(run_sums<kGrad, kMask, kSaved, kMasked>, grid, stream, a);
    return true;
  };
  if (above == saved) {
    return with_pair(grad, saved, [&]<Code kGrad, Code kSaved> {
      return run.template operator()<kGrad, kSaved, kSaved>();
    });
  }
  if constexpr (kMasked) {
    // A 16-bit activation over an 8-bit norm, or the other way round.
    return choose_code<Code::e5, Code::wide>(grad, [&]<Code kGrad> {
      if (above == Code::e4 && saved == Code::wide)
        return run.template operator()<kGrad, Code::e4, Code::wide>();
      return above == Code::wide && saved == Code::e4 &&
             run.template operator()<kGrad, Code::wide, Code::e4>();
    });
  }
  return false;
}

}  // namespace

bool quick_stats(const FusedCall& call, Stream stream) {
  SumArgs a{};
  if (!take_stats(call, a)) return false;
  const Grid grid{a.spread.rows * a.spread.slices, kSumThreads};
  return choose_code<Code::bf16, Code::e4, Code::e5, Code::wide>(code_of(call.leaf[0]), [&]<Code kCode> {
    launch(run_stats<kCode>, grid, stream, a);
    return true;
  });
}
bool quick_norm_sums(const FusedCall& call, Stream stream) { return launch_sums<false>(call, stream); }
bool quick_norm_relu_sums(const FusedCall& call, Stream stream) { return launch_sums<true>(call, stream); }

}  // namespace ulp::cuda
