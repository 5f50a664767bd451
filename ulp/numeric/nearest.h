// Rounds an fp32 number to a format's numbers, to nearest even; the result is fp32. Each operation
// of narrow arithmetic ends with it. There are no branches, so a loop over it becomes vector code.
// The bits are those of encoding and decoding by scalar.h, except that every NaN is first replaced
// by that of kNanBits.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/nearest_even.h"
#include "ulp/numeric/rounding.h"

namespace ulp {

struct Nearest {
  static constexpr bool kNarrow = true;
  uint32_t normal;     // pattern of the smallest normal number
  EvenByPattern even;  // for normal numbers
  float lift;          // 2^23 spacings of subnormal numbers: adding it rounds them
  uint32_t finite;     // pattern of the largest number
  uint32_t over, nan;  // patterns that an overflow, but for its sign, and a NaN become

  ULP_HD constexpr float operator()(float x) const {
    const uint32_t pattern = float_bits(x), magnitude = pattern & 0x7FFFFFFFu, sign = pattern ^ magnitude;
    const uint32_t as_normal = even.number(magnitude);
    const uint32_t as_subnormal = float_bits((bits_float(magnitude) + lift) - lift);
    uint32_t rounded = choose(magnitude < normal, as_subnormal, as_normal);
    rounded = choose(rounded > finite, over, rounded) | sign;
    return bits_float(choose(magnitude > 0x7F800000u, nan, rounded));
  }

  bool operator==(const Nearest&) const = default;

 private:
  // Masks where ?: might become a branch.
  ULP_HD static constexpr uint32_t choose(bool which, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - static_cast<uint32_t>(which);
    return (a & mask) | (b & ~mask);
  }
};

// Throws an Error if a normal number of the format is subnormal in fp32, where patterns are spaced
// otherwise, or if `overflow` asks for an infinity that the format does not have.
Nearest make_nearest(const FloatFormat& format, Overflow overflow = Overflow::saturate);

}  // namespace ulp
