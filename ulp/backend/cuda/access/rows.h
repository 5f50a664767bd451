// Operators on rows: a block of eight warps takes eight rows at a time, one per warp, and then
// writes their results together. Eight rows of any length are whole groups, so results go straight
// into their storage.
#pragma once

#include "ulp/backend/cuda/access/index.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {

inline constexpr uint32_t kBlockRows = kGroup;
inline constexpr uint32_t kRowThreads = 32 * kBlockRows;

inline Grid grid_of_rows(uint64_t rows) { return {blocks_for(rows, kBlockRows), kRowThreads}; }

// Rounds a sum in double to fp32, once.
__device__ inline float rounded(double x) { return settle_nan(static_cast<float>(x)); }

// The sum over all lanes, in a fixed order; all lanes get it.
__device__ inline double warp_total(double x) {
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, mask);
  return x;
}

// The sum of term(i) for i below n.
template <typename Term>
__device__ inline double warp_sum_of(uint64_t n, Term term) {
  double sum = 0;
  for (uint64_t i = threadIdx.x % 32; i < n; i += 32) sum += term(i);
  return warp_total(sum);
}

// Calls visit(octet, row, there) for this warp's row of each octet, all warps together.
template <typename Visit>
__device__ inline void for_rows(uint64_t rows, Visit visit) {
  for (uint64_t octet = blockIdx.x; octet < groups_of(rows); octet += gridDim.x) {
    const uint64_t row = octet * kBlockRows + threadIdx.x / 32;
    visit(octet, row, row < rows);
  }
}

// Writes eight rows of n elements: value(k, column, a, b) for row k of the eight, with a and b the
// elements of two tensors of the same shape. A tensor without elements is not read.
template <typename Value>
__device__ inline void write_rows(const WriteView& out, const StepState& state, uint64_t octet, uint32_t n,
                                  const StoredView& a, const StoredView& b, RangeCount& seen, Value value) {
  const uint64_t groups = groups_of(out.stored.elements);
  for (uint32_t j = threadIdx.x; j < n; j += kRowThreads) {
    const uint64_t g = octet * n + j;
    if (g >= groups) break;
    float from_a[8] = {}, from_b[8] = {}, x[8];
    if (a.elements != 0) load_stored(a, g, from_a);
    if (b.elements != 0) load_stored(b, g, from_b);
    const Divided place = divide(uint64_t{j} * kGroup, n);
    uint32_t row = static_cast<uint32_t>(place.quotient), column = place.rest;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = value(row, column, from_a[i], from_b[i]);
      if (++column < n) continue;
      column = 0;
      ++row;
    }
    store(out, state, g, x, seen);
  }
}

// Writes one value for each of eight rows, from one thread.
__device__ inline void write_octet(const WriteView& out, const StepState& state, uint64_t octet,
                                   const float (&made)[8], RangeCount& seen) {
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = made[i];
  store(out, state, octet, x, seen);
}

}  // namespace ulp::cuda
