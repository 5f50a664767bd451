// Positions in tensors, in kernels: division in 32 bits where the numbers allow it, and access to
// one or eight neighbouring elements by the same code.
#pragma once

#include "ulp/backend/cuda/access/codec.h"

namespace ulp::cuda {

struct Divided {
  uint64_t quotient;
  uint32_t rest;
};
// Almost all tensors take the same branch, and 64-bit division takes several times as long.
__device__ inline Divided divide(uint64_t a, uint32_t b) {
  if ((a >> 32) == 0) {
    const uint32_t q = static_cast<uint32_t>(a) / b;
    return {q, static_cast<uint32_t>(a) - q * b};
  }
  const uint64_t q = a / b;
  return {q, static_cast<uint32_t>(a - q * b)};
}

// `width` elements from `first` on: one, or a whole group.
template <int width>
__device__ inline void load_some(const StoredView& view, uint64_t first, float (&x)[width]) {
  if constexpr (width == 8) {
    load_stored(view, first / kGroup, x);
  } else {
    static_assert(width == 1);
    x[0] = load_one(view, first);
  }
}

// Sets x[at] without an array in local memory.
template <typename T>
__device__ inline void set_at(T (&x)[8], uint32_t at, T value) {
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) x[i] = i == at ? value : x[i];
}

}  // namespace ulp::cuda
