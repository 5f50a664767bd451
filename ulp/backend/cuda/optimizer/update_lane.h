// Eight elements of a stored tensor in a lane's registers: how they are loaded, their fp32
// patterns, and how values that are ordinary for the storage are written back. Only for files
// compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/convert_pair.h"
#include "ulp/backend/cuda/optimizer/update_unchecked.h"

namespace ulp::cuda {

inline constexpr uint32_t kRun = 4;          // elements of a run
inline constexpr uint32_t kLane = 2 * kRun;  // of a lane

// Bits of an fp32 pattern that are not stored.
constexpr uint32_t dropped_bits(Quick kind) {
  return kind == Quick::bf16 || kind == Quick::bf16_random ? 16 : kind == Quick::bf16_8 ? 8 : 0;
}

// Loads the bytes of a lane's eight elements, of one, two or four bytes each. `at` is the first
// element.
template <int kBytes, bool kNear>
__device__ inline void fetch(const uint8_t* from, uint64_t at, uint32_t* raw) {
  const uint8_t* first = from + kBytes * at;
  const uint8_t* second = first + kBytes * (kUpdateChunk / 2);
  if constexpr (kBytes == 4 || (kBytes == 2 && kNear)) {
    const uint4 one = *reinterpret_cast<const uint4*>(first);
    raw[0] = one.x, raw[1] = one.y, raw[2] = one.z, raw[3] = one.w;
    if constexpr (kBytes == 4) {
      const uint4 two = *reinterpret_cast<const uint4*>(kNear ? first + 16 : second);
      raw[4] = two.x, raw[5] = two.y, raw[6] = two.z, raw[7] = two.w;
    }
  } else if constexpr (kBytes == 2 || kNear) {
    const uint2 one = *reinterpret_cast<const uint2*>(first);
    raw[0] = one.x, raw[1] = one.y;
    if constexpr (kBytes == 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(second);
      raw[2] = two.x, raw[3] = two.y;
    }
  } else {
    raw[0] = *reinterpret_cast<const uint32_t*>(first);
    raw[1] = *reinterpret_cast<const uint32_t*>(second);
  }
}
// Stores them.
template <int kBytes, bool kNear>
__device__ inline void put(uint8_t* to, uint64_t at, const uint32_t* raw) {
  uint8_t* first = to + kBytes * at;
  uint8_t* second = first + kBytes * (kUpdateChunk / 2);
  if constexpr (kBytes == 4 || (kBytes == 2 && kNear)) {
    *reinterpret_cast<uint4*>(first) = make_uint4(raw[0], raw[1], raw[2], raw[3]);
    if constexpr (kBytes == 4)
      *reinterpret_cast<uint4*>(kNear ? first + 16 : second) = make_uint4(raw[4], raw[5], raw[6], raw[7]);
  } else if constexpr (kBytes == 2 || kNear) {
    *reinterpret_cast<uint2*>(first) = make_uint2(raw[0], raw[1]);
    if constexpr (kBytes == 2) *reinterpret_cast<uint2*>(second) = make_uint2(raw[2], raw[3]);
  } else {
    *reinterpret_cast<uint32_t*>(first) = raw[0];
    *reinterpret_cast<uint32_t*>(second) = raw[1];
  }
}

__device__ inline uint32_t bf16_pattern(const uint32_t* raw, uint32_t i) {
  return i % 2 == 0 ? raw[i / 2] << 16 : raw[i / 2] & 0xFFFF0000u;
}

// A lane's part of a stored tensor.
template <Quick kKind>
struct Lane {
  static constexpr int kBytes = kKind == Quick::fp32 ? 4 : 2, kSide = kKind == Quick::bf16_16  ? 2
                                                                      : kKind == Quick::bf16_8 ? 1
                                                                                               : 0;
  // Computed values are stored unchanged.
  static constexpr bool kExact = dropped_bits(kKind) == 0;

  uint32_t high[2 * kBytes], low[kSide == 0 ? 1 : 2 * kSide];

  template <bool kNear>
  __device__ void load(const uint8_t* codes, const uint8_t* side, uint64_t at) {
    fetch<kBytes, kNear>(codes, at, high);
    if constexpr (kSide > 0) fetch<kSide, kNear>(side, at, low);
  }
  template <bool kNear>
  __device__ void store(uint8_t* codes, uint8_t* side, uint64_t at) const {
    put<kBytes, kNear>(codes, at, high);
    if constexpr (kSide > 0) put<kSide, kNear>(side, at, low);
  }

  __device__ uint32_t pattern(uint32_t i) const {
    if constexpr (kKind == Quick::fp32) return high[i];
    if constexpr (kKind == Quick::bf16_16)
      return __byte_perm(low[i / 2], high[i / 2], i % 2 == 0 ? 0x5410u : 0x7632u);
    if constexpr (kKind == Quick::bf16_8) {
      const uint32_t byte = i % 4;
      return __byte_perm(low[i / 4], high[i / 2], (i % 2 == 0 ? 0x5400u : 0x7600u) | byte << 4) & 0xFFFFFF00u;
    }
    return bf16_pattern(high, i);
  }

  // Writes values that ordinary() accepts. `words` are random.
  __device__ void write(const float (&x)[kLane], const PhiloxWords* words) {
#pragma unroll
    for (uint32_t i = 0; i < kLane; i += 2) {
      if constexpr (kKind == Quick::fp32) {
        high[i] = float_bits(x[i]);
        high[i + 1] = float_bits(x[i + 1]);
      } else if constexpr (kKind == Quick::bf16) {
        high[i / 2] = bf16_pair(x[i], x[i + 1]);
      } else {
        uint32_t two[2] = {float_bits(x[i]), float_bits(x[i + 1])};
        if constexpr (kKind == Quick::bf16_8) {
          for (uint32_t& one : two) one = EvenByPattern::dropping(8).raised(one);
          const uint32_t bytes = __byte_perm(two[0], two[1], 0x0051u);
          low[i / 4] = i % 4 == 0 ? bytes : __byte_perm(low[i / 4], bytes, 0x5410u);
        } else if constexpr (kKind == Quick::bf16_random) {
#pragma unroll
          for (uint32_t k = 0; k < 2; ++k)
            two[k] += words[i / kRun].word[i % kRun + k] < two[k] << 16 ? 0x10000u : 0u;
        } else {
          low[i / 2] = __byte_perm(two[0], two[1], 0x5410u);
        }
        high[i / 2] = __byte_perm(two[0], two[1], 0x7632u);
      }
    }
  }
};

// Whether values can be written without checking each: none is NaN, overflows or becomes zero.
// `least` is the minimum of 2 * pattern - 1, which wraps to the largest number for zero.
template <Quick kKind>
__device__ inline bool ordinary(float most, uint32_t least) {
  if constexpr (kKind == Quick::fp32) return most <= bits_float(0x7F800000u);
  constexpr uint32_t kUnit = 1u << dropped_bits(kKind);
  constexpr uint32_t kSlack = kKind == Quick::bf16_random ? kUnit - 1 : kUnit / 2;
  const bool over = !(most < bits_float(0x7F800000u - kSlack));
  return !over && (dropped_bits(kKind) == 0 || least >= 2 * kSlack);
}
__device__ inline uint32_t less(uint32_t least, float x) {
  const uint32_t doubled = 2 * float_bits(x) - 1;
  return doubled < least ? doubled : least;
}

}  // namespace ulp::cuda
