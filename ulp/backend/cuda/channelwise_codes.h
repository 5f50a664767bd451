// Groups of eight numbers as packed codes of the processor's own types: converted two at a time, masked and compared as they lie. What the
// processor lacks on the CPU is spelled out. Only for files that are compiled as kernels.
#pragma once

#include "ulp/backend/cuda/channelwise.h"
#include "ulp/backend/cuda/pipeline_groups.h"
#include "ulp/backend/elementwise.h"

namespace ulp::cuda {

template <Code kCode>
inline constexpr int kWordsOf = kCode == Code::bf16 ? 4 : 2;

template <Code kCode>
struct Packed {
  uint32_t word[kWordsOf<kCode>];
};

template <Code kCode>
__device__ inline Packed<kCode> load_packed(const uint8_t* codes, uint32_t group) {
  Packed<kCode> made;
  if constexpr (kCode == Code::bf16) {
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
  if constexpr (kCode == Code::bf16) {
    reinterpret_cast<uint4*>(codes)[group] =
        make_uint4(made.word[0], made.word[1], made.word[2], made.word[3]);
  } else {
    reinterpret_cast<uint2*>(codes)[group] = make_uint2(made.word[0], made.word[1]);
  }
}

template <Code kCode>
__device__ inline uint32_t code_at(const Packed<kCode>& packed, int i) {
  constexpr int kEach = kCode == Code::bf16 ? 2 : 4, kBits = 32 / kEach;
  return pick(packed.word, i / kEach) >> (kBits * (i % kEach)) & ((1u << kBits) - 1);
}

#if defined(__CUDA_ARCH__)
// The processor's instructions.
template <Code kCode>
__device__ inline void unpack_two(uint32_t codes, float& low, float& high) {
  uint32_t halves;
  if constexpr (kCode == Code::e4) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  }
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(low), "=f"(high)
      : "r"(halves));
}
template <Code kCode>
__device__ inline uint32_t pack_two(float low, float high) {
  if constexpr (kCode == Code::bf16) {
    uint32_t codes;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(high), "f"(low));
    return codes;
  } else {
    uint16_t codes;
    if constexpr (kCode == Code::e4) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    }
    return codes;
  }
}
// All ones where a half is a number of bf16 above 0.
__device__ inline uint32_t positive_halves(uint32_t word) {
  const uint32_t zero = 0;
  return __hgt2_mask(reinterpret_cast<const __nv_bfloat162&>(word),
                     reinterpret_cast<const __nv_bfloat162&>(zero));
}
// Bytes filled with the signs of others: nibble 8 + i stands for byte i's.
template <uint32_t kChosen>
__device__ inline uint32_t fill_signs(uint32_t word) {
  uint32_t made;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(made) : "r"(word), "n"(kChosen));
  return made;
}
__device__ inline uint32_t larger_halves(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
#else
inline const QuickCodec& unit_codec(Code code) {
  static const QuickCodec e4 = make_quick({3, -6, 7, 0x7E, 0x7E, 0, 0x7F, 0, 0, kNanBits});
  static const QuickCodec e5 = make_quick({2, -14, 7, 0x7B, 0x7B, 0, 0x7F, 0, 0, kNanBits});
  return code == Code::e4 ? e4 : e5;
}
template <Code kCode>
inline void unpack_two(uint32_t codes, float& low, float& high) {
  low = bits_float(decode_quick(unit_codec(kCode), codes & 0xFFu));
  high = bits_float(decode_quick(unit_codec(kCode), codes >> 8 & 0xFFu));
}
template <Code kCode>
inline uint32_t pack_two(float low, float high) {
  if constexpr (kCode == Code::bf16) {
    const auto one = [](float x) {
      const uint32_t bits = float_bits(x);
      return x != x ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    };
    return one(low) | one(high) << 16;
  } else {
    return encode_even(unit_codec(kCode), float_bits(low)).code |
           encode_even(unit_codec(kCode), float_bits(high)).code << 8;
  }
}
inline uint32_t positive_halves(uint32_t word) {
  return (bits_float(word << 16) > 0 ? 0xFFFFu : 0u) |
         (bits_float(word & 0xFFFF0000u) > 0 ? 0xFFFF0000u : 0u);
}
template <uint32_t kChosen>
inline uint32_t fill_signs(uint32_t word) {
  uint32_t made = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    made |= (word >> (8 * (kChosen >> (4 * i) & 3u) + 7) & 1u) * 0xFFu << (8 * i);
  }
  return made;
}
inline uint32_t larger_halves(uint32_t a, uint32_t b) {
  const uint32_t low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a : b, high = a >> 16 > b >> 16 ? a : b;
  return (low & 0xFFFFu) | (high & 0xFFFF0000u);
}
#endif

// The numbers of a group; `lift` is what e4 needs beside the type's. Codes that are no numbers there come out as infinities or NaN,
// of which arithmetic makes no number again.
template <Code kCode>
__device__ inline void unpack(const Packed<kCode>& packed, float lift, float (&x)[8]) {
  if constexpr (kCode == Code::bf16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = bits_float(packed.word[i] << 16);
      x[2 * i + 1] = bits_float(packed.word[i] & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      unpack_two<kCode>(packed.word[i / 2] >> (16 * (i % 2)), x[2 * i], x[2 * i + 1]);
    if constexpr (kCode == Code::e4) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = x[i] * lift;
    }
  }
}

// The codes of numbers up to a Target's limit, rounded to nearest-even.
template <Code kCode>
__device__ inline Packed<kCode> pack(const float (&x)[8], float drop) {
  Packed<kCode> made;
  if constexpr (kCode == Code::bf16) {
#pragma unroll
    for (int i = 0; i < 4; ++i) made.word[i] = pack_two<kCode>(x[2 * i], x[2 * i + 1]);
  } else {
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = kCode == Code::e4 ? x[i] * drop : x[i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      made.word[i] = pack_two<kCode>(y[4 * i], y[4 * i + 1]) | pack_two<kCode>(y[4 * i + 2], y[4 * i + 3])
                                                                   << 16;
    }
  }
  return made;
}

// Numbers above 0 stay, others become 0. There are no NaN.
template <Code kCode>
__device__ inline void relu_packed(Packed<kCode>& packed) {
#pragma unroll
  for (int i = 0; i < kWordsOf<kCode>; ++i) {
    packed.word[i] &= ~fill_signs < kCode == Code::bf16 ? 0xBB99u : 0xBA98u > (packed.word[i]);
  }
}

// Codes stay where `out` is above 0. Of 8 bits all codes of `out` are numbers.
template <Code kCode, Code kOut>
__device__ inline void keep_positive(Packed<kCode>& packed, const Packed<kOut>& out) {
  static_assert(kWordsOf<kCode> == kWordsOf<kOut>);
#pragma unroll
  for (int i = 0; i < kWordsOf<kCode>; ++i) {
    if constexpr (kOut == Code::bf16) {
      packed.word[i] &= positive_halves(out.word[i]);
    } else {
      const uint32_t above = ((out.word[i] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) & ~out.word[i];
      packed.word[i] &= fill_signs<0xBA98u>(above);
    }
  }
}

// The largest of the magnitudes' codes; 8-bit ones are followed by those of neighbours. kSigned: there may be signs.
template <Code kCode, bool kSigned>
__device__ inline uint32_t most_of(uint32_t before, const Packed<kCode>& packed) {
  uint32_t most = before;
#pragma unroll
  for (int i = 0; i < kWordsOf<kCode>; ++i) {
    if constexpr (kCode == Code::bf16) {
      most = larger_halves(most, kSigned ? packed.word[i] & 0x7FFF7FFFu : packed.word[i]);
    } else {
      const uint32_t word = kSigned ? packed.word[i] & 0x7F7F7F7Fu : packed.word[i];
      most = larger_halves(larger_halves(most, word), word << 8);
    }
  }
  return most;
}
// From what most_of gathered to one code.
template <Code kCode>
__device__ inline uint32_t most_code(uint32_t most) {
  const uint32_t low = most & 0xFFFFu, high = most >> 16, code = low > high ? low : high;
  return kCode == Code::bf16 ? code : code >> 8;
}

// The pattern of the number that a code up to the largest is.
__device__ inline uint32_t number_of(const QuickCodec& codec, uint32_t code) {
  return float_bits(bits_float(code << codec.shift) * codec.lift);
}

// The smallest magnitude; NaN are passed over.
__device__ inline float smallest_of(const float (&x)[8]) {
  float least = fminf(fabsf(x[0]), fabsf(x[1]));
#pragma unroll
  for (int i = 2; i < 8; ++i) least = fminf(least, fabsf(x[i]));
  return least;
}

// How numbers are written.
struct Target {
  float lift, drop;    // between the format's numbers and the type's
  float limit;         // up to here numbers become codes that the type has too
  float vanishing;     // numbers up to here become 0
  EncodeStats* stats;  // null: not reported
  QuickCodec codec;    // for what is beyond
};

// What a thread saw of a tensor in groups within the limit.
struct Within {
  uint32_t underflow = 0, amax = 0;  // the last is an fp32 pattern

  __device__ void add(uint32_t vanished, float most) {
    underflow += vanished;
    amax = float_bits(most) > amax ? float_bits(most) : amax;
  }
};
// How many of a group become 0 without being 0. Few groups have any.
__device__ inline uint32_t vanishing_in(const Target& target, const float (&x)[8]) {
  uint32_t count = 0;
  if (smallest_of(x) <= target.vanishing) {
    // |x| in (0, vanishing]: 0 wraps around.
#pragma unroll
    for (int i = 0; i < 8; ++i) count += 2 * float_bits(x[i]) - 1 < 2 * float_bits(target.vanishing) ? 1 : 0;
  }
  return count;
}

// Reports at once what was seen in a group that goes the long way. Neighbours that go it too report together: in a tensor that
// overflows everywhere a word for each would wait for all others.
__device__ inline void report_now(const RangeCount& seen, EncodeStats* stats) {
  if (stats == nullptr) return;
#if defined(__CUDA_ARCH__)
  const uint32_t here = __activemask();
  const uint32_t sums[3] = {__reduce_add_sync(here, seen.overflow), __reduce_add_sync(here, seen.underflow),
                            __reduce_add_sync(here, seen.nan)};
  const uint32_t most = __reduce_max_sync(here, seen.amax);
  if ((here & ((1u << threadIdx.x % 32) - 1)) != 0) return;  // one below reports
#else
  const uint32_t sums[3] = {seen.overflow, seen.underflow, seen.nan}, most = seen.amax;
#endif
  unsigned long long* counts[3] = {reinterpret_cast<unsigned long long*>(&stats->overflow),
                                   reinterpret_cast<unsigned long long*>(&stats->underflow),
                                   reinterpret_cast<unsigned long long*>(&stats->nan)};
  for (int i = 0; i < 3; ++i) {
    if (sums[i] != 0) atomicAdd(counts[i], static_cast<unsigned long long>(sums[i]));
  }
  auto* amax = reinterpret_cast<unsigned int*>(&stats->amax);
  // It only grows: what is there already need not be written again.
  if (most > *static_cast<volatile unsigned int*>(amax)) atomicMax(amax, static_cast<unsigned int>(most));
}

// One number the long way, as what it is stored as: a code, and a number again.
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
  const uint32_t code =
      kCode == Code::bf16 ? reinterpret_cast<const uint16_t*>(codes)[element] : codes[element];
  return bits_float(decode_quick(codec, code));
}
template <Code kCode>
__device__ inline void store_long(uint8_t* codes, uint64_t element, uint32_t code) {
  if constexpr (kCode == Code::bf16) {
    reinterpret_cast<uint16_t*>(codes)[element] = static_cast<uint16_t>(code);
  } else {
    codes[element] = static_cast<uint8_t>(code);
  }
}

}  // namespace ulp::cuda
