// Rounding magnitudes to nearest even in few instructions, for host and device. There are two ways
// to the bits of scalar.h; nearest_even_simd.h has the same two for vectors. Neither looks at NaN
// or at overflow: the caller does.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"

namespace ulp {

// By pattern, for formats with fp32's exponents: a code is the top of an fp32 pattern. Just less
// than half a unit is added, and one more if the last bit kept is odd. What is below a unit is then
// cut off. Codes are consecutive, so a carry reaches the exponent by itself, and a sign bit above
// does no harm. Infinity stays infinity.
struct EvenByPattern {
  uint32_t shift;   // fp32 mantissa bits that the format does not have
  uint32_t addend;  // just less than half a unit
  uint32_t odd;     // mask of the last bit kept
  uint32_t keep;    // mask of all bits kept

  // Without mantissa bits (shift 23) the significand of every normal number is 1, odd: ties go up.
  ULP_HD static constexpr EvenByPattern dropping(uint32_t shift) {
    const uint32_t half = shift == 0 ? 0 : uint32_t{1} << (shift - 1);
    const bool some = shift > 0 && shift < 23;
    return {shift, some ? half - 1 : half, some ? 1u : 0u, ~((uint32_t{1} << shift) - 1)};
  }

  ULP_HD constexpr uint32_t raised(uint32_t pattern) const {
    return pattern + addend + (pattern >> shift & odd);
  }
  ULP_HD constexpr uint32_t code(uint32_t pattern) const { return raised(pattern) >> shift; }
  // The pattern of the rounded number.
  ULP_HD constexpr uint32_t number(uint32_t pattern) const { return raised(pattern) & keep; }

  bool operator==(const EvenByPattern&) const = default;
};

// By the fp32 adder, for formats whose normal numbers are normal in fp32 and that lack at least one
// of its mantissa bits. |x| plus 2^23 spacings of codes is rounded by the hardware to a whole
// number of spacings, ties to even. The spacing follows the binade of |x| and stops at the
// subnormal one. 2^23 spacings must be a finite fp32 number.
//
// The maximum comes after the addition, because Hopper does both in one instruction.
struct EvenByAdder {
  uint32_t up;     // 2^23 spacings in the binade of pattern p have the pattern p + up,
  uint32_t least;  // but at least this: those of subnormal numbers
  uint32_t base;   // added to get a code

  // `lowest` is the pattern of the smallest normal number.
  ULP_HD static constexpr EvenByAdder of(uint32_t shift, uint32_t lowest) {
    const uint32_t up = shift << 23, least = lowest + up;
    return {up, least, 0u - (least >> shift)};
  }

  // With half as many spacings again number() takes x itself: sums stay in the binade, and only a
  // zero loses its sign. For formats of at most 21 mantissa bits.
  ULP_HD constexpr EvenByAdder with_half_again() const { return {up + (1u << 22), least + (1u << 22), base}; }

  // The pattern of 2^23 spacings at a number with this pattern; its sign does not matter.
  ULP_HD constexpr uint32_t spacings(uint32_t pattern) const {
    const uint32_t own = (pattern & 0x7F800000u) + up;
    return own > least ? own : least;
  }
  // The code of |x|, with unbounded exponents: one above the format's largest is an overflow.
  // `many` is spacings() of x or of |x|, whichever is at hand: on a GPU the sign of an operand of
  // an addition is dropped for nothing, but not that of a pattern.
  ULP_HD constexpr uint32_t code(float magnitude, uint32_t many, uint32_t shift) const {
    return float_bits(magnitude + bits_float(many)) - many + (many >> shift) + base;
  }
  // |x| rounded. Without the 2^23 spacings the sum is the number itself.
  ULP_HD static constexpr float number(float magnitude, uint32_t many) {
    return (magnitude + bits_float(many)) - bits_float(many);
  }
};

}  // namespace ulp
