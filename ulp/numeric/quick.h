// The scalar codec (scalar.h) in few instructions, for devices on which every thread works on single numbers: the same
// codes, values and events for every format, mode and number. Formats and numbers that the short way does not cover go
// the long way.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/numeric/scalar.h"

namespace ulp {

// A format worked out. Trivially copyable.
struct QuickCodec {
  CodecSpec spec;
  uint32_t shift;   // fp32 mantissa bits that the format does not have
  uint32_t lowest;  // pattern of the smallest normal number
  float lift;       // what a code, read as an fp32 pattern, is multiplied by
  bool short_in, short_out;

  bool operator==(const QuickCodec&) const = default;
};

ULP_HD constexpr QuickCodec make_quick(const CodecSpec& spec) {
  QuickCodec quick{spec, static_cast<uint32_t>(23 - spec.man), 0, 1, false, false};
  // Rounding lets the fp32 adder do the work: it needs room above the mantissa, and normal numbers that are normal in fp32.
  quick.short_in = spec.man <= 21 && spec.emin >= -126 && spec.emin + 23 - spec.man <= 127;
  if (quick.short_in) quick.lowest = static_cast<uint32_t>(spec.emin + 127) << 23;
  // A code moved to fp32's place has its own exponent field: fields above 254 have no number there. What is left to do is
  // a multiplication by a power of two, 2^(emin + 126).
  const int power = spec.emin + 126;
  quick.short_out = (spec.max_code >> spec.man) <= 254 && power >= -126 && power <= 127;
  if (quick.short_out) quick.lift = bits_float(static_cast<uint32_t>(power + 127) << 23);
  return quick;
}

// From this magnitude on (2^104) numbers go the long way; infinities and NaN among them.
inline constexpr uint32_t kQuickLimit = 0x73800000u;

// encode_scalar with nearest-even.
ULP_HD constexpr Encoded encode_even(const QuickCodec& quick, uint32_t x) {
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  if (!quick.short_in || magnitude >= kQuickLimit)
    return encode_scalar(quick.spec, Round::nearest_even, x, 0);
  // The lowest pattern of the binade in which |x| is rounded: its own, or that of the smallest normal number.
  const uint32_t own = magnitude & 0x7F800000u, binade = own > quick.lowest ? own : quick.lowest;
  // 2^23 spacings of that binade: added to |x|, they leave a whole number of spacings in the low bits of the sum, rounded
  // to nearest, ties to even.
  const uint32_t many = binade + (quick.shift << 23);
  const uint32_t units = float_bits(bits_float(magnitude) + bits_float(many)) - many;
  const uint32_t code = ((binade - quick.lowest) >> quick.shift) + units;
  const uint32_t sign = (x >> 31) << quick.spec.sign_shift;
  if (code > quick.spec.max_code) return {quick.spec.over_code | sign, RangeEvent::overflow};
  if (code == 0 && magnitude != 0) return {sign, RangeEvent::underflow};
  return {code | sign, RangeEvent::none};
}

// encode_scalar in any mode.
ULP_HD constexpr Encoded encode_quick(const QuickCodec& quick, Round mode, uint32_t x, uint32_t random) {
  if (mode == Round::nearest_even) return encode_even(quick, x);
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  if (!quick.short_in || magnitude >= kQuickLimit) return encode_scalar(quick.spec, mode, x, random);
  const uint32_t own = magnitude & 0x7F800000u, binade = own > quick.lowest ? own : quick.lowest;
  // |x| over the spacing of its binade, as a whole number and a fraction in 2^-32nds: its significand, shifted by what
  // it lies below the binade. The fields of an fp32 subnormal and of the lowest normal binade mean the same exponent.
  const uint32_t field = own == 0 ? 1 : own >> 23;
  const uint32_t significand = (magnitude & 0x7FFFFFu) | (own == 0 ? 0u : 0x800000u);
  const uint32_t below = quick.shift + ((binade >> 23) - field);
  const uint64_t place = below < 64 ? (uint64_t{significand} << 32) >> below : 0;
  const Position p{static_cast<uint32_t>(place >> 32), static_cast<uint32_t>(place), 0};
  const uint32_t code =
      ((binade - quick.lowest) >> quick.shift) + p.units + static_cast<uint32_t>(rounds_up(mode, p, random));
  const uint32_t sign = (x >> 31) << quick.spec.sign_shift;
  if (code > quick.spec.max_code) return {quick.spec.over_code | sign, RangeEvent::overflow};
  if (code == 0 && magnitude != 0) return {sign, RangeEvent::underflow};
  return {code | sign, RangeEvent::none};
}

// decode_scalar.
ULP_HD constexpr uint32_t decode_quick(const QuickCodec& quick, uint32_t code) {
  const uint32_t magnitude = code & ((uint32_t{1} << quick.spec.sign_shift) - 1);
  if (!quick.short_out || magnitude > quick.spec.max_code) return decode_scalar(quick.spec, code);
  const uint32_t pattern = float_bits(bits_float(magnitude << quick.shift) * quick.lift);
  return pattern | (code >> quick.spec.sign_shift) << 31;
}

}  // namespace ulp
