#include "ulp/backend/cuda/elementwise/fused_groups.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/cuda/runtime/launch.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {
namespace {

// The split-K reduction. `members` threads share a group of elements: each adds every `members`-th
// piece, then they combine their sums pairwise in a tree. kQuick: the result is fp32 or codes of 8
// or 16 bits, rounded to nearest even, and nothing is added to it.
template <uint32_t members, bool kQuick>
__global__ void split_k_kernel(ULP_TABLE(SplitKSums) sums) {
  RangeCount seen;
  const uint64_t groups = groups_of(sums.elements), threads = uint64_t{gridDim.x} * blockDim.x;
  const uint32_t member = threadIdx.x % members;
  // All threads of a warp stay to the end, because they exchange sums.
  const uint64_t rounds = (groups * members + threads - 1) / threads;
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t group = (round * threads + blockIdx.x * uint64_t{blockDim.x} + threadIdx.x) / members;
    const bool there = group < groups;
    float x[8] = {};
#pragma unroll 4
    for (uint32_t piece = member; there && piece < sums.pieces; piece += members) {
      const float* at = sums.parts + piece * sums.elements + group * kGroup;
      const float4 low = *reinterpret_cast<const float4*>(at),
                   high = *reinterpret_cast<const float4*>(at + 4);
      x[0] += low.x, x[1] += low.y, x[2] += low.z, x[3] += low.w;
      x[4] += high.x, x[5] += high.y, x[6] += high.z, x[7] += high.w;
    }
#pragma unroll
    for (uint32_t step = 1; step < members; step *= 2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] += __shfl_xor_sync(0xFFFFFFFFu, x[i], static_cast<int>(step));
    }
    if (!there || member != 0) continue;
    if constexpr (kQuick) {
      store_quick<true>(sums.out, sums.rounder, group, x, seen);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = settle_nan(x[i]);
      store(sums.out, *sums.state, group, x, seen);
    }
  }
  report(seen, sums.out.stats);
}

template <bool kQuick>
void start(const SplitKSums& sums, Stream stream) {
  const uint64_t groups = groups_of(sums.elements);
  if (sums.pieces <= 8) {
    launch(split_k_kernel<1, kQuick>, {blocks_for(groups, 128), 128}, stream, sums);
  } else if (sums.pieces <= 32) {
    launch(split_k_kernel<8, kQuick>, {blocks_for(8 * groups), kThreads}, stream, sums);
  } else {
    launch(split_k_kernel<32, kQuick>, {blocks_for(32 * groups), kThreads}, stream, sums);
  }
}

}  // namespace

void add_split_k(SplitKSums sums, Stream stream) {
  const WriteView& out = sums.out;
  sums.rounder = make_rounder(out.stored.fp32, out.stored.codec, out.mode, out.number);
  const bool quick =
      writes_by_vectors(out) && sums.elements % kGroup == 0 && (!sums.rounder.on || sums.rounder.quick);
  quick ? start<true>(sums, stream) : start<false>(sums, stream);
}

}  // namespace ulp::cuda
