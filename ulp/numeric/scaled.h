// Scaled storage: 8-bit codes with one fp32 scale per block of 256 consecutive elements.
//
// A scale is a power of two: dividing by it is exact, so a number is rounded once, as in the element format
// with its bias shifted; a scale that was no power of two would round twice and gain at most one bit of
// range, none of precision. It is the smallest one with which no finite element of the block overflows, as
// far as it stays a normal fp32 number and no code decodes past fp32's largest one. A block of zeros has
// scale 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/base/device.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/numeric/scalar.h"
#include "ulp/numeric/stats.h"

namespace ulp {

inline constexpr size_t kScaledBlock = 256;

struct Scaled {
  FloatFormat element;  // 8 bits, no extra bias: the scale moves the range
  bool operator==(const Scaled&) const = default;
};

// Throws Error unless the element format has 8 bits and no extra bias.
Scaled make_scaled(const FloatFormat& element);

// log2 of the scale of a block whose largest finite magnitude has the given fp32 pattern. `spec` is of the
// element format, saturating.
ULP_HD constexpr int scale_exponent(const CodecSpec& spec, Round mode, uint32_t amax) {
  if (amax == 0) return 0;
  const int emax = static_cast<int>(spec.max_code >> spec.man) + spec.emin - 1;
  const int lowest = -126, highest = 127 - emax;
  // The exponent that brings amax into the top binade; one more where it still rounds past the largest
  // number.
  const uint32_t field = amax >> 23;
  int k = (field == 0 ? -126 : static_cast<int>(field) - 127) - emax;
  if (k < lowest) k = lowest;
  if (k < highest) {
    const uint32_t scaled = float_bits(bits_float(amax) * bits_float(static_cast<uint32_t>(127 - k) << 23));
    // Stochastic rounding may round up: word 0 rounds up whatever can.
    if (encode_scalar(spec, mode, scaled, 0).event == RangeEvent::overflow) ++k;
  }
  return k > highest ? highest : k;
}

// Arrays: one code a byte, one scale per block, kept as its fp32 pattern. Infinities saturate and count as
// overflow; they and NaN have no part in the scale. `first` must be a multiple of the block.
EncodeStats scaled_encode(const Scaled& scaled, const Rounding& rounding, std::span<const float> in,
                          std::span<uint8_t> codes, std::span<uint32_t> scales, uint64_t first = 0,
                          ExponentHistogram* histogram = nullptr);
void scaled_decode(const Scaled& scaled, std::span<const uint8_t> codes, std::span<const uint32_t> scales,
                   std::span<float> out);

}  // namespace ulp
