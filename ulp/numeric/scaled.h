// Scaled storage: 8-bit codes with one fp32 scale per block of 256 consecutive elements.
//
// A scale is a power of two, 2^k, so a block is simply stored in the element format with its bias
// lowered by k: a number is rounded once, by the rules of every format. A scale that was no power
// of two would round twice and gain at most one bit of range, none of precision. k is the smallest
// with which no finite element of the block overflows, as far as the scale stays a normal fp32
// number and the shifted format a valid one. A block of zeros has scale 1.
//
// With `nonzero` a number that would round to zero is the smallest code with its sign instead: for
// sums of squares, which are divided by.
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
  FloatFormat element;   // 8 bits, no extra bias: the scale moves the range
  bool nonzero = false;  // only zero is written as zero
  bool operator==(const Scaled&) const = default;
};

// Throws Error unless the element format has 8 bits and no extra bias.
Scaled make_scaled(const FloatFormat& element, bool nonzero = false);

constexpr size_t scaled_blocks(size_t n) { return (n + kScaledBlock - 1) / kScaledBlock; }

// The element format's codec under scale 2^k.
ULP_HD constexpr CodecSpec scaled_spec(CodecSpec element, int k) {
  element.emin += k;
  return element;
}

// The range of k: 2^k is a normal fp32 number, no code is below fp32's smallest number or above its
// largest.
ULP_HD constexpr int lowest_scale(const CodecSpec& element) {
  const int lowest = -149 - (element.emin - element.man);
  return lowest > -126 ? lowest : -126;
}
ULP_HD constexpr int highest_scale(const CodecSpec& element) {
  const int emax = static_cast<int>(element.max_code >> element.man) + element.emin - 1;
  return 127 - emax;
}

// k of a block whose largest finite magnitude has the given fp32 pattern.
ULP_HD constexpr int scale_exponent(const CodecSpec& element, Round mode, uint32_t amax) {
  if (amax == 0) return 0;
  const int lowest = lowest_scale(element), highest = highest_scale(element);
  // Bring amax into the top binade; one more where it still rounds past the largest number. 127 -
  // highest is emax.
  const int exponent = amax >> 23 == 0 ? -126 : static_cast<int>(amax >> 23) - 127;
  int k = exponent - (127 - highest);
  if (k < lowest) k = lowest;
  // Stochastic rounding may round up: word 0 rounds up whatever can.
  const bool over = encode_scalar(scaled_spec(element, k), mode, amax, 0).event == RangeEvent::overflow;
  return over && k < highest ? k + 1 : k;
}

// Arrays: one code a byte, one scale per block, kept as its fp32 pattern. Infinities count as
// overflow; they and NaN have no part in the scale. `first` must be a multiple of the block.
EncodeStats scaled_encode(const Scaled& scaled, const Rounding& rounding, std::span<const float> in,
                          std::span<uint8_t> codes, std::span<uint32_t> scales, uint64_t first = 0,
                          ExponentHistogram* histogram = nullptr);
void scaled_decode(const Scaled& scaled, std::span<const uint8_t> codes, std::span<const uint32_t> scales,
                   std::span<float> out);

}  // namespace ulp
