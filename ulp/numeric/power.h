// Base-2 logarithm and power for S2FP8, the same bits on every device: integers, exact scalings,
// and fp32 fma in a fixed order. Host and device compile this source; ulp/numeric/s2fp8_simd.cc
// repeats it in vectors.
//
// Errors, found by trying every input (make slow repeats it): log2_fixed is off by at most 0.71
// units of 2^-22 for every positive finite number, is monotone, and exact for powers of two.
// exp2_near is off by at most 2^-23.5 relatively for every number in [-1/2, 1/2].
#pragma once

#include <cmath>
#include <cstdint>

#include "ulp/base/device.h"

namespace ulp {

// Logarithms are fixed-point, in units of 2^-22: a 32-bit word holds any difference of two of them
// (at most 277), and their sums are exact in 64 bits, whatever the order.
inline constexpr int kLogFraction = 22;

// Minimax coefficients of r^k. Functions, since device code cannot name an array of the host.
// log2(1 + r) / r on [sqrt(1/2) - 1, sqrt(2) - 1]; r times it is off by at most 2^-29.7 before
// rounding.
inline constexpr int kLog2Degree = 9;
ULP_HD constexpr float log2_coefficient(int k) {
  constexpr float c[] = {0x1.715476p+0f,  -0x1.71546ap-1f, 0x1.ec709p-2f,   -0x1.715da6p-2f, 0x1.27814cp-2f,
                         -0x1.ea46d4p-3f, 0x1.a2627ap-3f,  -0x1.89f05cp-3f, 0x1.81d2e8p-3f,  -0x1.c18a8cp-4f};
  return c[k];
}
// (2^r - 1) / r on [-1/2, 1/2]; r times it is off by at most 2^-29 before rounding.
inline constexpr int kExp2Degree = 5;
ULP_HD constexpr float exp2_coefficient(int k) {
  constexpr float c[] = {0x1.62e43p-1f,  0x1.ebfbep-3f,  0x1.c6aedp-5f,
                         0x1.3b29aap-7f, 0x1.5f47bp-10f, 0x1.448fc2p-13f};
  return c[k];
}

// Adding this to |q| < 2^22 leaves q, rounded to the nearest integer, in the low bits of the sum.
inline constexpr float kRoundMagic = 0x1.8p23f;
inline constexpr uint32_t kSqrtHalfBits = 0x3F3504F3u;

ULP_HD inline float nearest_integer(float q) { return (q + kRoundMagic) - kRoundMagic; }

// log2 of a positive finite number, given as its fp32 pattern, in units of 2^-22.
ULP_HD inline int32_t log2_fixed(uint32_t pattern) {
  int32_t scaled_down = 0;
  if (pattern < 0x00800000u) {
    // A subnormal, brought into the normal range; exact.
    pattern = float_bits(bits_float(pattern) * 0x1p23f);
    scaled_down = 23;
  }
  // x = 2^exponent * f with f in [sqrt(1/2), sqrt(2)), so that f - 1 is small on both sides and
  // exact.
  const int32_t exponent = static_cast<int32_t>(pattern - kSqrtHalfBits) >> 23;
  const float r = bits_float(pattern - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  float p = log2_coefficient(kLog2Degree);
  for (int k = kLog2Degree - 1; k >= 0; --k) p = fmaf(p, r, log2_coefficient(k));
  const float fraction = (p * r) * 0x1p22f;
  const int32_t rounded = static_cast<int32_t>(float_bits(fraction + kRoundMagic)) -
                          static_cast<int32_t>(float_bits(kRoundMagic));
  return (exponent - scaled_down) * (1 << kLogFraction) + rounded;
}

// 2^r for |r| <= 1/2.
ULP_HD inline float exp2_near(float r) {
  float p = exp2_coefficient(kExp2Degree);
  for (int k = kExp2Degree - 1; k >= 0; --k) p = fmaf(p, r, exp2_coefficient(k));
  return fmaf(p, r, 1.0f);
}

}  // namespace ulp
