// Two fp32 values rounded to nearest even, or two codes decoded, by one instruction of the GPU: a
// third of the instructions of the ways in nearest_even.h, and the codes come packed. It has such
// instructions for bf16, fp16, e4m3 and e5m2. All kernels that convert pairs use these functions.
//
// They give the bits of scalar.h for values that do not exceed the type's largest number. Others
// are written as the hardware does: bf16 and fp16 overflow to infinity, 8-bit types saturate, and a
// NaN loses its payload. The emulation computes the same bits. Only for files compiled as kernels.
#pragma once

#include <cstdint>

#include "ulp/numeric/math.h"
#include "ulp/numeric/quick.h"

namespace ulp::cuda {

#if defined(__CUDA_ARCH__)

// The code of `low` is in the low half.
__device__ inline uint32_t bf16_pair(float low, float high) {
  uint32_t codes;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(high), "f"(low));
  return codes;
}
__device__ inline uint32_t fp16_pair(float low, float high) {
  uint32_t codes;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(codes) : "f"(high), "f"(low));
  return codes;
}
__device__ inline uint32_t e4m3_pair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
__device__ inline uint32_t e5m2_pair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

__device__ inline void fp16_values(uint32_t codes, float& low, float& high) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(low), "=f"(high)
      : "r"(codes));
}
__device__ inline void e4m3_values(uint32_t codes, float& low, float& high) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  fp16_values(halves, low, high);
}
__device__ inline void e5m2_values(uint32_t codes, float& low, float& high) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  fp16_values(halves, low, high);
}

#else

inline uint32_t bf16_pair(float low, float high) {
  const auto one = [](float x) { return x != x ? 0x7FFFu : EvenByPattern::dropping(16).code(float_bits(x)); };
  return one(low) | one(high) << 16;
}

namespace pair {
// The types without their specials: values and codes beyond are not compared.
inline constexpr QuickCodec kFp16 = make_quick({10, -14, 15, 0x7BFF, 0x7C00, 0, 0x7FFF, 0, 0, kNanBits});
inline constexpr QuickCodec kE4m3 = make_quick({3, -6, 7, 0x7E, 0x7E, 0, 0x7F, 0, 0, kNanBits});
inline constexpr QuickCodec kE5m2 = make_quick({2, -14, 7, 0x7B, 0x7B, 0, 0x7F, 0, 0, kNanBits});

inline uint32_t codes(const QuickCodec& codec, float low, float high) {
  return encode_even(codec, float_bits(low)).code | encode_even(codec, float_bits(high)).code
                                                        << (codec.spec.sign_shift + 1);
}
inline void values(const QuickCodec& codec, uint32_t codes, float& low, float& high) {
  low = bits_float(decode_quick(codec, codes & 0xFFu));
  high = bits_float(decode_quick(codec, codes >> 8 & 0xFFu));
}
}  // namespace pair

inline uint32_t fp16_pair(float low, float high) { return pair::codes(pair::kFp16, low, high); }
inline uint32_t e4m3_pair(float low, float high) { return pair::codes(pair::kE4m3, low, high); }
inline uint32_t e5m2_pair(float low, float high) { return pair::codes(pair::kE5m2, low, high); }
inline void e4m3_values(uint32_t codes, float& low, float& high) {
  pair::values(pair::kE4m3, codes, low, high);
}
inline void e5m2_values(uint32_t codes, float& low, float& high) {
  pair::values(pair::kE5m2, codes, low, high);
}

#endif

}  // namespace ulp::cuda
