// S2FP8 storage: e5m2 codes of Y with log2|Y| = alpha log2|X| + beta, and the two fp32 statistics
// beside them. alpha and beta spread the tensor over the range of e5m2: the mean of log2|Y| is 0,
// its maximum 15.
//
//   mu = mean, m = maximum of log2|x| over the non-zero elements; infinities count as the largest
//   finite magnitude, NaN is left out. alpha = 15 / (m - mu), beta = -alpha mu.
//   m = mu (one non-zero element, or all magnitudes equal): alpha = 1, beta = -mu, so that Y = 1.
//   alpha is at most 2^10: a nearly constant tensor then ends below 2^15, and elements down to
//   about 1.1% below the geometric mean still stay above zero.
//   No non-zero element: alpha = 1, beta = 0.
//
// The sum behind mu is exact (fixed-point, ulp/numeric/power.h), so alpha and beta do not depend on
// the order of summation: threads, vector width and device cannot change them.
//
// Everything below works with mu = -beta / alpha rounded to units of 2^-22, in encoding and
// decoding alike: alpha (log2|x| - mu) does not cancel as alpha log2|x| + beta would, and what
// rounding moved mu by is undone when decoding. The error of a restored value is the e5m2 rounding
// of Y, 1/alpha-th of it in the exponent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/base/device.h"
#include "ulp/numeric/power.h"
#include "ulp/numeric/stats.h"

namespace ulp {

struct S2fp8Stats {
  float alpha = 1;
  float beta = 0;
  bool operator==(const S2fp8Stats&) const = default;
};

inline constexpr float kS2fp8MaxAlpha = 0x1p10f;
// No tensor has less: logarithms of fp32 numbers lie at most 277 apart.
inline constexpr float kS2fp8MinAlpha = 15.0f / 278;
inline constexpr int kS2fp8Target = 15;  // log2 of the largest |Y|

// So many elements at most, that the sum of logarithms fits.
inline constexpr uint64_t kS2fp8MaxElements = uint64_t{1} << 33;

// What one pass over the tensor gathers.
struct LogSums {
  int64_t sum = 0;     // of log2_fixed over the non-zero elements
  uint64_t count = 0;  // of those
  int32_t max = INT32_MIN;

  void merge(const LogSums& other) {
    sum += other.sum;
    count += other.count;
    if (other.max > max) max = other.max;
  }
};

// The fp32 pattern as the statistics see it: infinity is the largest finite number.
ULP_HD constexpr uint32_t finite_magnitude(uint32_t x) {
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  return magnitude == 0x7F800000u ? 0x7F7FFFFFu : magnitude;
}

ULP_HD inline S2fp8Stats s2fp8_stats(const LogSums& sums) {
  if (sums.count == 0) return {};
  const double unit = 1.0 / (1 << kLogFraction);
  const double mu = static_cast<double>(sums.sum) / static_cast<double>(sums.count) * unit;
  const double m = static_cast<double>(sums.max) * unit;
  S2fp8Stats stats;
  // All magnitudes equal, told in integers: in a large tensor the mean, rounded, may fall short of
  // the maximum.
  if (sums.sum == sums.max * static_cast<int64_t>(sums.count)) {
    stats.beta = static_cast<float>(-m);
    return stats;
  }
  if (m > mu) {
    const double alpha = kS2fp8Target / (m - mu);
    stats.alpha = alpha < kS2fp8MaxAlpha ? static_cast<float>(alpha) : kS2fp8MaxAlpha;
  }
  stats.beta = static_cast<float>(-static_cast<double>(stats.alpha) * mu);
  return stats;
}

// The statistics as the element functions use them.
struct S2fp8Map {
  float alpha;
  int32_t mu;   // units of 2^-22
  float scale;  // alpha 2^-22
};

ULP_HD inline S2fp8Map s2fp8_map(const S2fp8Stats& stats) {
  const double mu = -static_cast<double>(stats.beta) / static_cast<double>(stats.alpha);
  return {stats.alpha, static_cast<int32_t>(floor(mu * (1 << kLogFraction) + 0.5)), stats.alpha * 0x1p-22f};
}

// log2|Y| as the element functions have it. It grows with the magnitude, and so does the code of Y
// (s2fp8_borders): for one pair of statistics, codes are ranges of magnitudes.
ULP_HD inline float s2fp8_exponent(const S2fp8Map& map, uint32_t magnitude) {
  return static_cast<float>(log2_fixed(magnitude) - map.mu) * map.scale;
}

// Below the first Y rounds to zero in e5m2, whose smallest number is 2^-16. From the second on it
// overflows; with a tensor's own statistics no Y does.
inline constexpr float kS2fp8Lowest = -20.0f, kS2fp8Highest = 20.0f;

// The pattern of |Y| from its logarithm.
ULP_HD inline uint32_t s2fp8_power(float t) {
  t = t > kS2fp8Lowest ? t : kS2fp8Lowest;
  t = t < kS2fp8Highest ? t : kS2fp8Highest;
  const float n = nearest_integer(t);
  return float_bits(exp2_near(t - n)) + (static_cast<uint32_t>(static_cast<int32_t>(n)) << 23);
}

// Pattern of x to pattern of Y, sign kept; zero and NaN stay what they are.
ULP_HD inline uint32_t s2fp8_squeeze(const S2fp8Map& map, uint32_t x) {
  const uint32_t magnitude = finite_magnitude(x);
  if (magnitude == 0 || magnitude > 0x7F800000u) return x;
  return s2fp8_power(s2fp8_exponent(map, magnitude)) | (x & 0x80000000u);
}

// log2_fixed of a value of e5m2, whose significand is a number of quarters.
ULP_HD constexpr int32_t log2_of_e5m2(uint32_t magnitude) {
  const uint32_t quarters = magnitude >> 21 & 3;
  const int32_t fraction = quarters == 0 ? 0 : quarters == 1 ? 1350264 : quarters == 2 ? 2453511 : 3386292;
  return (static_cast<int32_t>(magnitude >> 23) - 127) * (1 << kLogFraction) + fraction;
}

// Pattern of Y, one of the values of e5m2, back to a pattern of x. Never infinite for a finite Y,
// nor zero for another: where fp32 ends, its largest or smallest number stands.
ULP_HD inline uint32_t s2fp8_restore(const S2fp8Map& map, uint32_t y) {
  const uint32_t magnitude = y & 0x7FFFFFFFu, sign = y & 0x80000000u;
  if (magnitude == 0 || magnitude >= 0x7F800000u) return y;
  // log2|x| = whole + rest, the whole part apart so that a large mu costs the rest no bits.
  const int32_t whole = (map.mu + (1 << (kLogFraction - 1))) >> kLogFraction;
  const float mu_rest = static_cast<float>(map.mu - whole * (1 << kLogFraction)) * 0x1p-22f;
  const float rest = static_cast<float>(log2_of_e5m2(magnitude)) * 0x1p-22f / map.alpha + mu_rest;
  const float n = nearest_integer(rest);
  const float power = exp2_near(rest - n);  // in [2^-1/2, 2^1/2]
  const int32_t exponent = whole + static_cast<int32_t>(n);
  if (exponent > 128) return sign | 0x7F7FFFFFu;
  if (exponent < -151) return sign | 1u;
  // Two exact steps into the range, the last of which rounds once where the result is subnormal.
  const int32_t half = exponent / 2;
  const float first = bits_float(static_cast<uint32_t>(half + 127) << 23);
  const float second = bits_float(static_cast<uint32_t>(exponent - half + 127) << 23);
  const uint32_t x = float_bits(power * first * second);
  return sign | (x == 0 ? 1u : x < 0x7F800000u ? x : 0x7F7FFFFFu);
}

// Arrays: one code a byte. `stats` receives the statistics to keep beside the codes.
EncodeStats s2fp8_encode(std::span<const float> in, std::span<uint8_t> codes, S2fp8Stats& stats,
                         ExponentHistogram* histogram = nullptr);
void s2fp8_decode(std::span<const uint8_t> codes, const S2fp8Stats& stats, std::span<float> out);

}  // namespace ulp
