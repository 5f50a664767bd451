// The scalar codec (scalar.h) in few instructions, for devices whose threads work on single
// numbers. Codes, values and events are the same for every format, mode and number. What the short
// way does not cover goes the long way.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/numeric/nearest_even.h"
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
  // Rounding lets the fp32 adder do the work: it needs room above the mantissa, and normal numbers
  // that are normal in fp32.
  quick.short_in = spec.man <= 21 && spec.emin >= -126 && spec.emin + 23 - spec.man <= 127;
  if (quick.short_in) quick.lowest = static_cast<uint32_t>(spec.emin + 127) << 23;
  // A code moved to fp32's place has its own exponent field: fields above 254 have no number there.
  // What is left to do is a multiplication by a power of two, 2^(emin + 126).
  const int power = spec.emin + 126;
  quick.short_out = (spec.max_code >> spec.man) <= 254 && power >= -126 && power <= 127;
  if (quick.short_out) quick.lift = bits_float(static_cast<uint32_t>(power + 127) << 23);
  return quick;
}

// From this magnitude on (2^104) numbers go the long way; infinities and NaN among them.
inline constexpr uint32_t kQuickLimit = 0x73800000u;

// The code of a magnitude below kQuickLimit, rounded to nearest even with unbounded exponents. Of a
// format that is short_in.
ULP_HD constexpr uint32_t even_code(const QuickCodec& quick, uint32_t magnitude) {
  const EvenByAdder even = EvenByAdder::of(quick.shift, quick.lowest);
  return even.code(bits_float(magnitude), even.spacings(magnitude), quick.shift);
}

// encode_scalar with nearest-even.
ULP_HD constexpr Encoded encode_even(const QuickCodec& quick, uint32_t x) {
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  if (!quick.short_in || magnitude >= kQuickLimit)
    return encode_scalar(quick.spec, Round::nearest_even, x, 0);
  const uint32_t code = even_code(quick, magnitude);
  const uint32_t sign = (x >> 31) << quick.spec.sign_shift;
  if (code > quick.spec.max_code) return {quick.spec.over_code | sign, RangeEvent::overflow};
  if (code == 0 && magnitude != 0) return {sign, RangeEvent::underflow};
  return {code | sign, RangeEvent::none};
}

// a + b of numbers that are not below 0, cut off where it would be rounded.
ULP_HD inline float add_cut(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rz(a, b);
#else
  // The sum to nearest, and what it lacks (Knuth): a step down where it came out too large.
  const float sum = a + b, other = sum - a;
  const float lacks = (a - (sum - other)) + (b - other);
  return lacks < 0 ? bits_float(float_bits(sum) - 1) : sum;
#endif
}

// Where |x| lies on the axis of codes, in units of 2^-shift codes, cut off: of a format that is
// short_in, for magnitudes below kQuickLimit. With L = 2^emin, `lowest`, that is the pattern of
// max(2|x|, |x| + L), less that of L:
//  - |x| >= L: the pattern of 2|x|, one exponent above |x|'s. From L on codes and patterns both
//    grow by one binade at a time, 2^man codes and 2^23 patterns; L is code 2^man and comes out as
//    2^23. Nothing is cut off.
//  - |x| < L: the sum, within [L, 2L), has steps of 2^(emin - 23): |x| in steps of 2^-shift
//    spacings, cut off.
ULP_HD inline uint32_t axis_place(const QuickCodec& quick, uint32_t magnitude) {
  const float x = bits_float(magnitude);
  const uint32_t twice = float_bits(x + x), sum = float_bits(add_cut(x, bits_float(quick.lowest)));
  return (twice > sum ? twice : sum) - quick.lowest;
}

// What is added to a place so that its carry into the codes is stochastic rounding. Let f be the
// place's last `shift` bits and q the random word's first `shift` bits. The word is below the
// fraction f 2^(32-shift) if q < f, that is if f + (2^shift - 1 - q) carries.
ULP_HD constexpr uint32_t random_addend(const QuickCodec& quick, uint32_t random) {
  return (uint32_t{1} << quick.shift) - 1 - (random >> (32 - quick.shift));
}
// Whether, with that added, the place was too short to tell: q = f, and later bits of both decide.
// Only below the smallest normal number were such bits cut off. Elsewhere there are none, and the
// number is not rounded up.
ULP_HD constexpr bool random_unsure(const QuickCodec& quick, uint32_t sum) {
  const uint32_t last = (uint32_t{1} << quick.shift) - 1;
  return (sum & last) == last;
}

// encode_scalar in any mode.
ULP_HD inline Encoded encode_quick(const QuickCodec& quick, Round mode, uint32_t x, uint32_t random) {
  if (mode == Round::nearest_even) return encode_even(quick, x);
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  if (!quick.short_in || magnitude >= kQuickLimit) return encode_scalar(quick.spec, mode, x, random);
  uint32_t place = axis_place(quick, magnitude);
  if (mode == Round::stochastic) {
    place += random_addend(quick, random);
    if (random_unsure(quick, place) && magnitude < quick.lowest)
      return encode_scalar(quick.spec, mode, x, random);
  } else if (mode == Round::nearest_away) {
    place += uint32_t{1} << (quick.shift - 1);
  }
  const uint32_t code = place >> quick.shift;
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
