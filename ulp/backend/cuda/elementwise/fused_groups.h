// Groups of eight values in registers: read, rounded and written. Two paths give the same bits. The
// general path takes any storage and rounding mode, through codec.h. The fast path takes codes of
// 8, 16 and 32 bits rounded to nearest even, in few steps for ordinary values; a group with a
// special value goes to the scalar codec. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/access/convert_pair.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {

// Which leaves a kernel is compiled for: all of 8 bits; of 8 or 16; of 8, 16 or 32; or any (kAny).
inline constexpr int kAny = 0;

// An element by an index not known at compile time, without an array in local memory.
template <typename T, int n>
__device__ inline T pick(const T (&x)[n], int i) {
  T value = x[0];
#pragma unroll
  for (int k = 1; k < n; ++k) value = k == i ? x[k] : value;
  return value;
}
template <typename T, int n>
__device__ inline void put(T (&x)[n], int i, T value) {
#pragma unroll
  for (int k = 0; k < n; ++k) x[k] = k == i ? value : x[k];
}

// The larger of two magnitudes; NaN if one is NaN.
__device__ inline float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(fabsf(a)), "f"(fabsf(b)));
  return most;
#else
  const float p = fabsf(a), q = fabsf(b);
  return p >= q || p != p ? p : q;
#endif
}
__device__ inline float largest_of(const float (&x)[8]) {
  float most[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) most[i] = larger(x[2 * i], x[2 * i + 1]);
  return larger(larger(most[0], most[1]), larger(most[2], most[3]));
}

// A group's codes as stored.
template <int kWidth>
struct Raw {
  uint32_t word[kWidth == 8 ? 2 : kWidth == 16 ? 4 : 8];
};
template <>
struct Raw<kAny> {};

template <int kWidth>
__device__ inline void load_raw(const Leaf& leaf, uint64_t group, Raw<kWidth>& raw) {
  if constexpr (kWidth != kAny) {
    const uint32_t bits = kWidth == 8 ? 8 : leaf.view.stored.bits;
    const uint8_t* at = leaf.view.stored.codes + group * bits;
    if (kWidth == 8 || bits == 8) {
      const uint2 two = *reinterpret_cast<const uint2*>(at);
      raw.word[0] = two.x;
      raw.word[1] = two.y;
    } else if constexpr (kWidth >= 16) {
      const uint4 four = *reinterpret_cast<const uint4*>(at);
      raw.word[0] = four.x;
      raw.word[1] = four.y;
      raw.word[2] = four.z;
      raw.word[3] = four.w;
      if constexpr (kWidth == 32) {
        if (bits == 32) {
          const uint4 next = *reinterpret_cast<const uint4*>(at + 16);
          raw.word[4] = next.x;
          raw.word[5] = next.y;
          raw.word[6] = next.z;
          raw.word[7] = next.w;
        }
      }
    }
  }
}

// Decodes codes of kBits bits. A code at the top of a register is shifted with its sign to its
// place in an fp32 pattern; bits below it are masked. A factor supplies the missing exponent.
template <int kBits, int kWords>
__device__ inline void decode_raw(const Leaf& leaf, const uint32_t (&word)[kWords], float (&x)[8]) {
  constexpr int kEach = 32 / kBits;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t top = word[i / kEach] << (32 - kBits - kBits * (i % kEach));
    const uint32_t placed = static_cast<uint32_t>(static_cast<int32_t>(top) >> leaf.shift) & leaf.mask;
    x[i] = bits_float(placed) * leaf.lift;
  }
  if (leaf.ordinary) return;
  if (largest_of(x) <= leaf.largest) return;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const uint32_t code = pick(word, i / kEach) >> (kBits * (i % kEach)) & ((1u << kBits) - 1);
    put(x, i, bits_float(decode_quick(leaf.view.stored.codec, code)));
  }
}

// `values`: those of the leaf's 256 codes, if it is read by a table.
template <int kWidth>
__device__ inline void decode_group(const Leaf& leaf, const Raw<kWidth>& raw, float (&x)[8],
                                    const float* values = nullptr) {
  if constexpr (kWidth != kAny) {
    if (leaf.table) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = values[raw.word[i / 4] >> (8 * (i % 4)) & 0xFFu];
      return;
    }
  }
  if constexpr (kWidth == 8) {
    decode_raw<8>(leaf, raw.word, x);
  } else if constexpr (kWidth != kAny) {
    const uint32_t bits = leaf.view.stored.bits;
    if (kWidth == 32 && bits == 32) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = bits_float(raw.word[kWidth == 32 ? i : 0]);
    } else if (bits == 8) {
      decode_raw<8>(leaf, raw.word, x);
    } else if (leaf.same) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[2 * i] = bits_float(raw.word[i] << 16);
        x[2 * i + 1] = bits_float(raw.word[i] & 0xFFFF0000u);
      }
    } else {
      decode_raw<16>(leaf, raw.word, x);
    }
  }
}

// Counts range events of values within the limit; `most` is their largest magnitude.
__device__ inline void count_quick(const Rounder& rounder, const float (&x)[8], float most,
                                   RangeCount& seen) {
#pragma unroll
  for (int i = 0; i < 8; ++i) seen.add_vanished(x[i], rounder.vanishing);
  seen.add_most(most);
}

// The code of |x|, for |x| within the limit.
__device__ inline uint32_t quick_code(const Rounder& rounder, float x) {
  return rounder.even.code(fabsf(x), rounder.even.spacings(float_bits(x)), rounder.codec.shift);
}

// The codes of a group with a special value; their decoded values replace x.
template <bool kSettles>
__device__ inline void encode_special(const Rounder& rounder, float (&x)[8], uint32_t (&code)[8],
                                      RangeCount& seen) {
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const float one = kSettles ? settle_nan(pick(x, i)) : pick(x, i);
    const Encoded made = encode_even(rounder.codec, float_bits(one));
    seen.add(made, float_bits(one));
    put(code, i, made.code);
    put(x, i, bits_float(decode_quick(rounder.codec, made.code)));
  }
}

// Two values within the limit as two codes of 16 bits.
__device__ inline uint32_t native_codes(Rounder::Native native, float low, float high) {
  return native == Rounder::Native::bf16 ? bf16_pair(low, high) : fp16_pair(low, high);
}

// Rounds values in registers. kSettles: arithmetic may have produced NaN, which is then settled to
// one pattern.
template <bool kSettles>
__device__ inline void round_quick(const Rounder& rounder, float (&x)[8], RangeCount& seen) {
  if (!rounder.on) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = kSettles ? settle_nan(x[i]) : x[i];
    return;
  }
  const float most = largest_of(x);
  const bool over = !(most <= rounder.limit);
  if (over && !(most < kShortLimit)) {
    uint32_t code[8] = {};
    encode_special<kSettles>(rounder, x, code, seen);
    return;
  }
  if (rounder.exact && !over) {
    seen.add_most(most);
    return;
  }
  count_quick(rounder, x, most, seen);
  if (rounder.native == Rounder::Native::bf16 && !over) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t two = bf16_pair(x[2 * i], x[2 * i + 1]);
      x[2 * i] = bits_float(two << 16);
      x[2 * i + 1] = bits_float(two & 0xFFFF0000u);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float rounded = EvenByAdder::number(fabsf(x[i]), rounder.even.spacings(float_bits(x[i])));
    if (over && rounded > rounder.largest) {
      rounded = rounder.over;
      ++seen.overflow;
    }
    x[i] = bits_float(float_bits(rounded) | (float_bits(x[i]) & 0x80000000u));
  }
}

__device__ inline uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b) {
  return (a & mask) | (b & ~mask);
}

// Writes a group: fp32, or codes of 8 or 16 bits.
template <bool kSettles>
__device__ inline void store_quick(const WriteView& view, const Rounder& rounder, uint64_t group,
                                   float (&x)[8], RangeCount& seen) {
  uint32_t code[8];
  if (!rounder.on) {
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = float_bits(kSettles ? settle_nan(x[i]) : x[i]);
    store_codes(view.stored.codes, 32, group, kGroup, code);
    return;
  }
  const float most = largest_of(x);
  const bool over = !(most <= rounder.limit);
  if (over && !(most < kShortLimit)) {
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = 0;
    encode_special<kSettles>(rounder, x, code, seen);
    if (view.stored.bits == 8) {
      store_codes(view.stored.codes, 8, group, kGroup, code);
    } else {
      store_codes(view.stored.codes, 16, group, kGroup, code);
    }
    return;
  }
  const bool exact = rounder.exact && !over;
  if (exact) {
    seen.add_most(most);
  } else {
    count_quick(rounder, x, most, seen);
  }
  uint8_t* at = view.stored.codes + group * view.stored.bits;
  if (rounder.native != Rounder::Native::none && !over) {
    *reinterpret_cast<uint4*>(at) =
        make_uint4(native_codes(rounder.native, x[0], x[1]), native_codes(rounder.native, x[2], x[3]),
                   native_codes(rounder.native, x[4], x[5]), native_codes(rounder.native, x[6], x[7]));
    return;
  }
  if (exact && rounder.drop != 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = float_bits(fabsf(x[i]) * rounder.drop) >> rounder.codec.shift;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = quick_code(rounder, x[i]);
  }
  if (over) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (code[i] <= rounder.codec.spec.max_code) continue;
      code[i] = rounder.codec.spec.over_code;
      ++seen.overflow;
    }
  }
  // Signs are taken from the values, several at a time.
  if (view.stored.bits == 8) {
    uint32_t word[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t codes = __byte_perm(__byte_perm(code[4 * i], code[4 * i + 1], 0x0040),
                                         __byte_perm(code[4 * i + 2], code[4 * i + 3], 0x0040), 0x5410);
      const uint32_t signs =
          __byte_perm(__byte_perm(float_bits(x[4 * i]), float_bits(x[4 * i + 1]), 0x0073),
                      __byte_perm(float_bits(x[4 * i + 2]), float_bits(x[4 * i + 3]), 0x0073), 0x5410);
      word[i] = choose_bits(0x7F7F7F7Fu, codes, signs);
    }
    *reinterpret_cast<uint2*>(at) = make_uint2(word[0], word[1]);
  } else {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t codes = __byte_perm(code[2 * i], code[2 * i + 1], 0x5410);
      const uint32_t signs = __byte_perm(float_bits(x[2 * i]), float_bits(x[2 * i + 1]), 0x7632);
      word[i] = choose_bits(0x7FFF7FFFu, codes, signs);
    }
    *reinterpret_cast<uint4*>(at) = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

}  // namespace ulp::cuda
