// The epilogue of the implicit GEMM kernels: a thread's fp32 sums, neighbouring channels of one
// pixel, are rounded to nearest even and stored as codes. This is where convolution results get
// their output format. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/elementwise/fused_groups.h"

namespace ulp::cuda {

// Two 16-bit codes with their signs.
__device__ inline uint32_t two_codes(const Rounder& rounder, float low, float high) {
  if (rounder.native != Rounder::Native::none) return native_codes(rounder.native, low, high);
  const uint32_t codes = __byte_perm(quick_code(rounder, low), quick_code(rounder, high), 0x5410);
  const uint32_t signs = __byte_perm(float_bits(low), float_bits(high), 0x7632);
  return choose_bits(0x7FFF7FFFu, codes, signs);
}

// Stores `n` elements starting at `element`, both multiples of 8, as fp32 or as codes of 8 or 16
// bits. Specials and overflows take the general path for groups (fused_groups.h).
template <int n>
__device__ inline void store_sums(const WriteView& view, const Rounder& rounder, uint64_t element,
                                  float (&x)[n], RangeCount& seen) {
  float most = larger(x[0], x[1]);
#pragma unroll
  for (int i = 2; i < n; ++i) most = larger(most, x[i]);
  const bool short_way = rounder.on && most <= rounder.limit;
  if (!short_way) {
#pragma unroll 1
    for (int group = 0; group < n / 8; ++group) {
      float eight[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        eight[i] = x[i];
#pragma unroll
        for (int g = 1; g < n / 8; ++g) eight[i] = g == group ? x[8 * g + i] : eight[i];
      }
      store_quick<true>(view, rounder, element / 8 + static_cast<uint32_t>(group), eight, seen);
    }
    return;
  }
  seen.add_most(most);
  uint8_t* at = view.stored.codes + element / 8 * view.stored.bits;
  uint32_t vanished = 0;  // set if a code became 0
  if (view.stored.bits == 8) {
    uint32_t word[n / 4];
#pragma unroll
    for (int w = 0; w < n / 4; ++w) {
      uint32_t code[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) code[i] = quick_code(rounder, x[4 * w + i]);
      const uint32_t codes =
          __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040), 0x5410);
      const uint32_t signs =
          __byte_perm(__byte_perm(float_bits(x[4 * w]), float_bits(x[4 * w + 1]), 0x0073),
                      __byte_perm(float_bits(x[4 * w + 2]), float_bits(x[4 * w + 3]), 0x0073), 0x5410);
      vanished |= (codes - 0x01010101u) & ~codes;
      word[w] = choose_bits(0x7F7F7F7Fu, codes, signs);
    }
    vanished &= 0x80808080u;
    if constexpr (n % 16 == 0) {
#pragma unroll
      for (int w = 0; w < n / 4; w += 4) {
        *reinterpret_cast<uint4*>(at + 4 * w) = make_uint4(word[w], word[w + 1], word[w + 2], word[w + 3]);
      }
    } else {
#pragma unroll
      for (int w = 0; w < n / 4; w += 2)
        *reinterpret_cast<uint2*>(at + 4 * w) = make_uint2(word[w], word[w + 1]);
    }
  } else {
    uint32_t word[n / 2];
#pragma unroll
    for (int w = 0; w < n / 2; ++w) {
      word[w] = two_codes(rounder, x[2 * w], x[2 * w + 1]);
      const uint32_t codes = word[w] & 0x7FFF7FFFu;
      vanished |= (codes - 0x00010001u) & ~codes;
    }
    vanished &= 0x80008000u;
#pragma unroll
    for (int w = 0; w < n / 2; w += 4) {
      *reinterpret_cast<uint4*>(at + 4 * w) = make_uint4(word[w], word[w + 1], word[w + 2], word[w + 3]);
    }
  }
  if (vanished != 0) {
#pragma unroll
    for (int i = 0; i < n; ++i) seen.add_vanished(x[i], rounder.vanishing);
  }
}

}  // namespace ulp::cuda
