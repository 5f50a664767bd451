// exp, log, tanh, the logistic function, erf and softplus of fp32 numbers, the same bits on CPU and
// GPU and in any vectorised loop. Two math libraries never agree to the last bit, so these use
// none: only IEEE additions, multiplications and divisions in double, in a fixed order, one
// rounding to fp32 at the end, and integer operations on patterns. There are no early returns, so
// that a loop over an array becomes vector code.
//
// Largest errors in units in the last place of the exact result; no function with an fp32 result
// can stay below 0.5. Found by trying every positive number for log, every one with 2^-27 <= |x| <
// 128 for the others, and one in 61 of the rest (make slow repeats it):
//   exp_near  0.500001    log_near      0.500001    tanh_near  0.500002
//   erf_near  0.500005    sigmoid_near  0.500001    log1p_exp  0.500001
// Subnormal results, overflow, infinities and signed zeros come out as IEEE 754 has them. Each
// function is monotone. Every NaN that comes out is the one quiet NaN of kNanBits, whatever went
// in.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"

namespace ulp {

// The NaN that results are given. Which NaN an operation makes of its operands differs between
// processors, and on one processor with the order in which the compiler puts them.
inline constexpr uint32_t kNanBits = 0x7FC00000u;

namespace detail {

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
// Adding this to |q| < 2^51 leaves q, rounded to the nearest integer, in the low bits of the sum.
inline constexpr double kRoundToInteger = 0x1.8p52;
inline constexpr uint64_t kOneBits = uint64_t{1023} << 52;  // 1.0; its exponent field is the bias
inline constexpr uint64_t kRootHalfBits = 0x3FE6A09E667F3BCDu;
inline constexpr uint32_t kInfinityBits = 0x7F800000u;

ULP_HD constexpr uint64_t double_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
ULP_HD constexpr double bits_double(uint64_t b) { return __builtin_bit_cast(double, b); }

// Choices are made by masks on fp32 patterns. Written as ?: GCC turns them into branches, moves the
// arithmetic into an arm, and may then not take it out again, since it could raise a flag: no
// vector code. All ones where a < b; both are patterns of magnitudes or otherwise below 2^31.
ULP_HD constexpr uint32_t mask_less(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(static_cast<int32_t>(a - b) >> 31);
}
ULP_HD constexpr uint32_t select(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }

ULP_HD constexpr uint32_t magnitude_bits(float x) { return float_bits(x) & 0x7FFFFFFFu; }
ULP_HD constexpr uint32_t sign_bit(float x) { return float_bits(x) & 0x80000000u; }
// |x|, but at most `limit`; of a NaN too.
ULP_HD constexpr uint32_t limited_bits(float x, float limit) {
  const uint32_t a = magnitude_bits(x), b = float_bits(limit);
  return select(mask_less(a, b), a, b);
}
// x moved into [-limit, limit].
ULP_HD constexpr double limited(float x, float limit) {
  return bits_float(limited_bits(x, limit) | sign_bit(x));
}
// The result, or the one NaN where x is a NaN.
ULP_HD constexpr float unless_nan(float x, uint32_t result) {
  return bits_float(select(mask_less(kInfinityBits, magnitude_bits(x)), kNanBits, result));
}

// Horner's scheme, the coefficient of the highest power first. A fold and not a loop over a table:
// device code cannot name an array of the host, and a loop inside a loop is not always unrolled in
// time to be vectorised.
template <typename... Coefficients>
ULP_HD constexpr double polynomial(double x, double highest, Coefficients... lower) {
  double sum = highest;
  ((sum = sum * x + lower), ...);
  return sum;
}

// e^x = scale * (1 + fraction), scale a power of two, for |x| < 700. The fraction is off by at most
// 2^-42.5 of itself, so that e^x - 1 is as good for small x as e^x is.
struct Exponential {
  double scale, fraction;
};
ULP_HD constexpr Exponential exponential(double x) {
  const double shifted = x * kLog2E + kRoundToInteger;
  const double n = shifted - kRoundToInteger;
  // |x| <= 256 here, so the product is off by 2^-46 at most: nothing where n is 0, little against
  // ln 2 / 2 where it is not. Cutting ln 2 in two would gain nothing that fp32 shows.
  const double r = x - n * kLn2;
  // (e^r - 1 - r) / r^2, minimax on |r| <= ln 2 / 2.
  const double q = polynomial(r, 0x1.72e11653e761bp-19, 0x1.a136c32a2d6bcp-16, 0x1.a01997d8db432p-13,
                              0x1.6c166bdb98db0p-10, 0x1.1111112183e10p-7, 0x1.55555565c8f4dp-5,
                              0x1.5555555552757p-3, 0x1.fffffffffe05fp-2);
  // The low bits of `shifted` are n; biased and moved into the exponent field, all above them drops
  // out.
  return {bits_double((double_bits(shifted) + 1023) << 52), r + (r * r) * q};
}

// log((1 + s) / (1 - s)) for |s| <= 3 - sqrt(8), which is where (m - 1) / (m + 1) lies for m
// between sqrt(1/2) and sqrt(2). Off by at most 2^-43 of itself: minimax of (log(..) - 2 s) / s^3
// in s^2.
ULP_HD constexpr double log_of_ratio(double s) {
  const double z = s * s;
  const double q = polynomial(z, 0x1.8c9504ac6ad05p-3, 0x1.c67a54739a5bbp-3, 0x1.2493251c2b709p-2,
                              0x1.999998c92bc90p-2, 0x1.55555555651f6p-1);
  return 2.0 * s + s * (z * q);
}

}  // namespace detail

// x, or the one NaN in place of any.
ULP_HD constexpr float settle_nan(float x) {
#if defined(__CUDA_ARCH__)
  return x == x ? x : bits_float(kNanBits);  // two instructions there
#else
  return detail::unless_nan(x, float_bits(x));
#endif
}

// e^x.
ULP_HD constexpr float exp_near(float x) {
  // e^-110 is far below half the smallest fp32 number, e^110 above the largest; both are doubles.
  const auto e = detail::exponential(detail::limited(x, 110.0f));
  return detail::unless_nan(x, float_bits(static_cast<float>(e.scale + e.scale * e.fraction)));
}

// The natural logarithm: -infinity of either zero, NaN of a negative number.
ULP_HD constexpr float log_near(float x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)); an fp32 subnormal is a normal double. Other x give
  // a number of no meaning, which is replaced below.
  const uint64_t bits = detail::double_bits(x);
  const uint64_t field = (bits - detail::kRootHalfBits + detail::kOneBits) >> 52;  // e + 1023
  const double m = detail::bits_double(bits - (field << 52) + detail::kOneBits);
  // An integer below 2^52 becomes a double as the low bits of 2^52; vector units before AVX-512
  // have no conversion of 64-bit integers.
  const double e = detail::bits_double(0x4330000000000000u | field) - (0x1p52 + 1023);
  const double log = e * detail::kLn2 + detail::log_of_ratio((m - 1.0) / (m + 1.0));

  const uint32_t pattern = float_bits(x), magnitude = detail::magnitude_bits(x);
  const uint32_t is_zero = detail::mask_less(magnitude, 1);
  const uint32_t has_sign = static_cast<uint32_t>(static_cast<int32_t>(pattern) >> 31);
  const uint32_t not_finite = detail::mask_less(detail::kInfinityBits - 1, magnitude);
  uint32_t result = float_bits(static_cast<float>(log));
  result = detail::select(not_finite, magnitude, result);
  result = detail::select(has_sign, kNanBits, result);
  result = detail::select(is_zero, 0xFF800000u, result);
  return detail::unless_nan(x, result);
}

// The hyperbolic tangent.
ULP_HD constexpr float tanh_near(float x) {
  // From 10 on, the result is 1. e^2x - 1 has no cancellation: where the scale is 1, the first term
  // is all.
  const auto e = detail::exponential(2.0 * bits_float(detail::limited_bits(x, 10.0f)));
  const double m = e.scale * e.fraction + (e.scale - 1.0);
  return detail::unless_nan(x, float_bits(static_cast<float>(m / (m + 2.0))) | detail::sign_bit(x));
}

// 1 / (1 + e^-x), the logistic function.
ULP_HD constexpr float sigmoid_near(float x) {
  const auto e = detail::exponential(-detail::limited(x, 110.0f));
  return detail::unless_nan(x,
                            float_bits(static_cast<float>(1.0 / (1.0 + (e.scale + e.scale * e.fraction)))));
}

// The error function.
ULP_HD constexpr float erf_near(float x) {
  // From 3.92 on, the result is 1. erf(x) / x is an entire function of x^2 whose Taylor series
  // about the middle of [0, 16] alternates and falls off like Poisson's weights: one polynomial in
  // t = x^2 / 8 - 1 serves the whole range, off by at most 2^-41.8 of the result and with at most
  // five times a double's rounding.
  const double a = bits_float(detail::limited_bits(x, 4.0f));
  const double ratio = detail::polynomial(
      (a * a) * 0.125 - 1.0, 0x1.76ce74edfaeb4p-20, -0x1.3144b44d1b642p-18, 0x1.7569f024a9108p-18,
      -0x1.ae7ba2996fa42p-17, 0x1.9e27af25bd863p-15, -0x1.0860cc7b9ca56p-13, 0x1.1feb5d6a0a02bp-12,
      -0x1.3d6668cb2dd24p-11, 0x1.52ea92c553230p-10, -0x1.5282a9309bc17p-9, 0x1.3e1612334ddf8p-8,
      -0x1.19f43245aafe0p-7, 0x1.d6349aa2b6af6p-7, -0x1.7036acbecb124p-6, 0x1.0ed5375fd6732p-5,
      -0x1.76e8449ba0bedp-5, 0x1.ea97ef8c23e03p-5, -0x1.3215da04840d7p-4, 0x1.717efc886ea56p-4,
      -0x1.b92e95b51f060p-4, 0x1.0dabaf05dc747p-3, -0x1.69a0ccda4f78bp-3, 0x1.6a040781a4b82p-2);
  return detail::unless_nan(x, float_bits(static_cast<float>(a * ratio)) | detail::sign_bit(x));
}

// log(1 + e^x), softplus: the positive part of x and log(1 + u) with u = e^-|x|. It neither
// overflows nor cancels, which is what a cross entropy of logits needs.
ULP_HD constexpr float log1p_exp(float x) {
  const uint32_t limited = detail::limited_bits(x, 110.0f);
  const auto e = detail::exponential(-static_cast<double>(bits_float(limited)));
  const double u = e.scale + e.scale * e.fraction;
  // log(1 + u), or log((1 + u) / 2) + log 2 where 1 + u is above sqrt(2), that is |x| below 0.8814.
  const uint32_t halved = detail::mask_less(limited, float_bits(0.8813736f)) & 1u;
  const double h = static_cast<int32_t>(halved);
  const double log = h * detail::kLn2 + detail::log_of_ratio((u - h) / (u + (2.0 + h)));
  const double positive_part =
      bits_float(float_bits(x) & ~static_cast<uint32_t>(static_cast<int32_t>(float_bits(x)) >> 31));
  return detail::unless_nan(x, float_bits(static_cast<float>(positive_part + log)));
}

}  // namespace ulp
