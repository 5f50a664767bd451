// Groups of eight values as packed codes: converted, masked and compared two or four at a time.
// Hardware types use the GPU's conversion instructions, which are written out for the CPU. Only for
// files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm.h"
#include "ulp/backend/cuda/elementwise/fused_groups.h"
#include "ulp/backend/elementwise.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#endif

namespace ulp::cuda {

// True if codes have 16 bits, else 8.
template <Code kCode>
inline constexpr bool kHalves = kCode == Code::bf16 || kCode == Code::wide;
template <Code kCode>
inline constexpr int kWordsOf = kHalves<kCode> ? 4 : 2;

template <Code kCode>
struct Packed {
  uint32_t word[kWordsOf<kCode>];
};

template <Code kCode>
__device__ inline Packed<kCode> load_packed(const uint8_t* codes, uint32_t group) {
  Packed<kCode> made;
  if constexpr (kHalves<kCode>) {
    const uint4 four = reinterpret_cast<const uint4*>(codes)[group];
    made.word[0] = four.x;
    made.word[1] = four.y;
    made.word[2] = four.z;
    made.word[3] = four.w;
  } else {
    const uint2 two = reinterpret_cast<const uint2*>(codes)[group];
    made.word[0] = two.x;
    made.word[1] = two.y;
  }
  return made;
}

template <Code kCode>
__device__ inline void store_packed(uint8_t* codes, uint32_t group, const Packed<kCode>& made) {
  if constexpr (kHalves<kCode>) {
    reinterpret_cast<uint4*>(codes)[group] =
        make_uint4(made.word[0], made.word[1], made.word[2], made.word[3]);
  } else {
    reinterpret_cast<uint2*>(codes)[group] = make_uint2(made.word[0], made.word[1]);
  }
}

template <Code kCode>
__device__ inline uint32_t code_at(const Packed<kCode>& packed, int i) {
  constexpr int kEach = kHalves<kCode> ? 2 : 4, kBits = 32 / kEach;
  return pick(packed.word, i / kEach) >> (kBits * (i % kEach)) & ((1u << kBits) - 1);
}

#if defined(__CUDA_ARCH__)
// The GPU's instructions.
// All ones in each half that is a bf16 number above 0.
__device__ inline uint32_t positive_halves(uint32_t word) {
  const uint32_t zero = 0;
  return __hgt2_mask(reinterpret_cast<const __nv_bfloat162&>(word),
                     reinterpret_cast<const __nv_bfloat162&>(zero));
}
// Fills bytes with the sign of others: nibble 8 + i selects the sign of byte i, 12 + i that of the
// second word's byte i.
template <uint32_t kChosen>
__device__ inline uint32_t fill_signs(uint32_t word, uint32_t second = 0) {
  uint32_t made;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(made) : "r"(word), "r"(second), "n"(kChosen));
  return made;
}
__device__ inline uint32_t larger_halves(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
#else
inline uint32_t positive_halves(uint32_t word) {
  return (bits_float(word << 16) > 0 ? 0xFFFFu : 0u) |
         (bits_float(word & 0xFFFF0000u) > 0 ? 0xFFFF0000u : 0u);
}
template <uint32_t kChosen>
inline uint32_t fill_signs(uint32_t word, uint32_t second = 0) {
  uint32_t made = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t chosen = kChosen >> (4 * i), from = (chosen & 4u) != 0 ? second : word;
    made |= (from >> (8 * (chosen & 3u) + 7) & 1u) * 0xFFu << (8 * i);
  }
  return made;
}
inline uint32_t larger_halves(uint32_t a, uint32_t b) {
  const uint32_t low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a : b, high = a >> 16 > b >> 16 ? a : b;
  return (low & 0xFFFFu) | (high & 0xFFFF0000u);
}
#endif

template <Code kCode>
__device__ inline void unpack_two(uint32_t codes, float& low, float& high) {
  kCode == Code::e4 ? e4m3_values(codes, low, high) : e5m2_values(codes, low, high);
}
template <Code kCode>
__device__ inline uint32_t pack_two(float low, float high) {
  if constexpr (kCode == Code::bf16) {
    return bf16_pair(low, high);
  } else {
    return kCode == Code::e4 ? e4m3_pair(low, high) : e5m2_pair(low, high);
  }
}

// How codes become values. e4: `lift` multiplies the hardware type's values. wide: a code moves
// from the top of a register down by `shift` to its place in an fp32 pattern, `mask` selects its
// bits there, and `lift` supplies the missing exponent.
struct Reading {
  float lift;
  uint32_t shift, mask;
};

// How values are written.
struct CodeTarget {
  Reading reading;
  float drop;          // 1 / lift
  EvenByAdder even;    // wide
  bool wide;           // else e4; used if the kernel's template does not say
  float limit;         // values up to here become codes that the hardware type has too
  float vanishing;     // values up to here become 0
  EncodeStats* stats;  // null: not reported
  QuickCodec codec;    // for values beyond the limit
};

// The values of a group; for e4 the hardware type's. Codes that the type has no number for become
// infinity or NaN, and arithmetic does not turn those into numbers again.
template <Code kCode>
__device__ inline void unpack_units(const Packed<kCode>& packed, const Reading& reading, float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kCode == Code::bf16) {
      x[2 * i] = bits_float(packed.word[i] << 16);
      x[2 * i + 1] = bits_float(packed.word[i] & 0xFFFF0000u);
    } else if constexpr (kCode == Code::wide) {
      // The sign stays on top; the mask removes its copies and the neighbour's bits.
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto top = static_cast<int32_t>(k == 0 ? packed.word[i] << 16 : packed.word[i]);
        x[2 * i + k] = bits_float(static_cast<uint32_t>(top >> reading.shift) & reading.mask) * reading.lift;
      }
    } else {
      unpack_two<kCode>(packed.word[i / 2] >> (16 * (i % 2)), x[2 * i], x[2 * i + 1]);
    }
  }
}
// The values of a group in the format itself.
template <Code kCode>
__device__ inline void unpack(const Packed<kCode>& packed, const Reading& reading, float (&x)[8]) {
  unpack_units<kCode>(packed, reading, x);
  if constexpr (kCode == Code::e4) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = x[i] * reading.lift;
  }
}

// |x| up to the limit of a `wide` target, rounded to nearest even.
__device__ inline float round_wide(const CodeTarget& target, float x) {
  return EvenByAdder::number(fabsf(x), target.even.spacings(float_bits(x)));
}

// The codes of two magnitudes, low and high. A value of the format divided by the lift is a pattern
// of the code with zeros below it.
__device__ inline uint32_t wide_codes(const CodeTarget& target, float low, float high) {
  const uint32_t first = float_bits(round_wide(target, low) * target.drop);
  const uint32_t second = float_bits(round_wide(target, high) * target.drop);
  return first >> (16 - target.reading.shift) | second << target.reading.shift;
}

// The codes of values up to the target's limit, rounded to nearest even.
template <Code kCode>
__device__ inline Packed<kCode> pack(const float (&x)[8], const CodeTarget& target) {
  Packed<kCode> made;
  if constexpr (kCode == Code::bf16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) made.word[i] = pack_two<kCode>(x[2 * i], x[2 * i + 1]);
  } else if constexpr (kCode == Code::wide) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t signs = __byte_perm(float_bits(x[2 * i]), float_bits(x[2 * i + 1]), 0x7632);
      made.word[i] = choose_bits(0x7FFF7FFFu, wide_codes(target, x[2 * i], x[2 * i + 1]), signs);
    }
  } else {
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = kCode == Code::e4 ? x[i] * target.drop : x[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      made.word[i] = pack_two<kCode>(y[4 * i], y[4 * i + 1]) | pack_two<kCode>(y[4 * i + 2], y[4 * i + 3])
                                                                   << 16;
    }
  }
  return made;
}

// Rounds values up to the limit as if they were stored. kCode none: e4 or wide, as the target says.
template <Code kCode>
__device__ inline void round_within(const CodeTarget& target, float (&x)[8]) {
  if constexpr (kCode == Code::none) {
    if (target.wide) {
      round_within<Code::wide>(target, x);
    } else {
      round_within<Code::e4>(target, x);
    }
  } else if constexpr (kCode == Code::wide) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float rounded = round_wide(target, x[i]);
      x[i] = bits_float(choose_bits(0x7FFFFFFFu, float_bits(rounded), float_bits(x[i])));
    }
  } else {
    unpack<kCode>(pack<kCode>(x, target), target.reading, x);
  }
}

// pack() of a ReLU: codes above 0 stay, others become 0.
template <Code kCode>
__device__ inline Packed<kCode> pack_relu(const float (&x)[8], const CodeTarget& target) {
  if constexpr (kCode == Code::wide) {
    Packed<kCode> made;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t below = fill_signs<0xFFBBu>(float_bits(x[2 * i]), float_bits(x[2 * i + 1]));
      made.word[i] = wide_codes(target, x[2 * i], x[2 * i + 1]) & ~below;
    }
    return made;
  } else {
    Packed<kCode> made = pack<kCode>(x, target);
#pragma unroll
    for (int i = 0; i < kWordsOf<kCode>; ++i) {
      made.word[i] &= ~fill_signs < kHalves<kCode> ? 0xBB99u : 0xBA98u > (made.word[i]);
    }
    return made;
  }
}

// Keeps codes where `out` is above 0. Except for bf16, all codes of `out` must be numbers.
template <Code kCode, Code kOut>
__device__ inline void keep_positive(Packed<kCode>& packed, const Packed<kOut>& out) {
  if constexpr (kOut == Code::bf16) {
    static_assert(kHalves<kCode>);
#pragma unroll
    for (int i = 0; i < 4; ++i) packed.word[i] &= positive_halves(out.word[i]);
  } else {
    // A code's sign position becomes 1 if it is above 0.
    constexpr uint32_t kRest = kHalves<kOut> ? 0x7FFF7FFFu : 0x7F7F7F7Fu;
    uint32_t above[kWordsOf<kOut>];
#pragma unroll
    for (int i = 0; i < kWordsOf<kOut>; ++i) above[i] = ((out.word[i] & kRest) + kRest) & ~out.word[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (kHalves<kCode> && kHalves<kOut>) {
        packed.word[2 * i] &= fill_signs<0xBB99u>(above[2 * i]);
        packed.word[2 * i + 1] &= fill_signs<0xBB99u>(above[2 * i + 1]);
      } else if constexpr (kHalves<kCode>) {
        packed.word[2 * i] &= fill_signs<0x9988u>(above[i]);
        packed.word[2 * i + 1] &= fill_signs<0xBBAAu>(above[i]);
      } else if constexpr (kHalves<kOut>) {
        packed.word[i] &= fill_signs<0xFDB9u>(above[2 * i], above[2 * i + 1]);
      } else {
        packed.word[i] &= fill_signs<0xBA98u>(above[i]);
      }
    }
  }
}

// The largest code of the magnitudes; 8-bit codes have a neighbour's bits below them. kSigned:
// codes may have signs.
template <Code kCode, bool kSigned>
__device__ inline uint32_t most_of(uint32_t before, const Packed<kCode>& packed) {
  uint32_t most = before;
#pragma unroll
  for (int i = 0; i < kWordsOf<kCode>; ++i) {
    if constexpr (kHalves<kCode>) {
      most = larger_halves(most, kSigned ? packed.word[i] & 0x7FFF7FFFu : packed.word[i]);
    } else {
      const uint32_t word = kSigned ? packed.word[i] & 0x7F7F7F7Fu : packed.word[i];
      most = larger_halves(larger_halves(most, word), word << 8);
    }
  }
  return most;
}
// Reduces what most_of accumulated to one code.
template <Code kCode>
__device__ inline uint32_t most_code(uint32_t most) {
  const uint32_t low = most & 0xFFFFu, high = most >> 16, code = low > high ? low : high;
  return kHalves<kCode> ? code : code >> 8;
}

// The fp32 pattern of a code's value, for codes up to the largest.
__device__ inline uint32_t number_of(const QuickCodec& codec, uint32_t code) {
  return float_bits(bits_float(code << codec.shift) * codec.lift);
}

// The smallest magnitude; NaN is ignored.
__device__ inline float smallest_of(const float (&x)[8]) {
  float least = fminf(fabsf(x[0]), fabsf(x[1]));
#pragma unroll
  for (int i = 2; i < 8; ++i) least = fminf(least, fabsf(x[i]));
  return least;
}

// How many values of a group become 0 without being 0. Few groups have any.
__device__ inline uint32_t vanishing_in(const CodeTarget& target, const float (&x)[8]) {
  uint32_t count = 0;
  if (smallest_of(x) <= target.vanishing) {
#pragma unroll
    for (int i = 0; i < 8; ++i) count += vanishes(x[i], 2 * float_bits(target.vanishing)) ? 1 : 0;
  }
  return count;
}
// Counts a group within the limit: nothing else can happen to its values. `most` is their largest
// magnitude.
__device__ inline void count_within(const CodeTarget& target, const float (&x)[8], float most,
                                    RangeCount& seen) {
  seen.underflow += vanishing_in(target, x);
  seen.add_most(most);
}

// The slow path for one value: its code, and the value of that code.
__device__ inline uint32_t code_long(const QuickCodec& codec, float x, RangeCount& seen) {
  const Encoded made = encode_even(codec, float_bits(x));
  seen.add(made, float_bits(x));
  return made.code;
}
__device__ inline float round_long(const QuickCodec& codec, float x, RangeCount& seen) {
  return bits_float(decode_quick(codec, code_long(codec, x, seen)));
}
template <Code kCode>
__device__ inline float load_long(const QuickCodec& codec, const uint8_t* codes, uint64_t element) {
  const uint32_t code = kHalves<kCode> ? reinterpret_cast<const uint16_t*>(codes)[element] : codes[element];
  return bits_float(decode_quick(codec, code));
}
template <Code kCode>
__device__ inline void store_long(uint8_t* codes, uint64_t element, uint32_t code) {
  if constexpr (kHalves<kCode>) {
    reinterpret_cast<uint16_t*>(codes)[element] = static_cast<uint16_t>(code);
  } else {
    codes[element] = static_cast<uint8_t>(code);
  }
}

}  // namespace ulp::cuda
