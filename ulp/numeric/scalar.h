// The scalar codec: one fp32 number to one code and back, for every format, mode and edge. This is
// the definition of correct. Every faster path, on CPU or GPU, must give the same bits and is
// tested against it. Host and device compile this source.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"

namespace ulp {

// A format worked out into the numbers that the bit logic uses. Trivially copyable, so a GPU kernel
// takes it by value.
struct CodecSpec {
  int32_t man;         // mantissa bits of a code
  int32_t emin;        // exponent of the smallest normal number
  int32_t sign_shift;  // position of the sign bit
  uint32_t max_code;   // magnitude code of the largest finite number; above it are specials
  uint32_t over_code;  // magnitude code that an overflow is written as
  // NaN: the code is ((payload >> (23 - man)) & nan_keep) | nan_code, or nan_quiet on top where no
  // payload bit is left, so that it does not read as infinity.
  uint32_t nan_keep, nan_code, nan_quiet;
  // Decoding a special code c gives the fp32 pattern ((c << (23 - man)) & special_keep) |
  // special_code.
  uint32_t special_keep, special_code;

  bool operator==(const CodecSpec&) const = default;
};

// Throws Error if the format is not valid, or `overflow` asks for an infinity that it does not
// have.
CodecSpec make_spec(const FloatFormat& format, Overflow overflow);

enum class RangeEvent : uint8_t { none, overflow, underflow, nan };

struct Encoded {
  uint32_t code;
  RangeEvent event;
};

// |x| written as `units` times the spacing of codes at |x|, plus a fraction of that spacing in
// 2^-32nds, rounded down; `binade` is 0 in the subnormal range and the lowest normal binade, 1 in
// the next, and so on.
struct Position {
  uint32_t units;
  uint32_t fraction;
  uint32_t binade;
};

ULP_HD constexpr Position locate(const CodecSpec& spec, uint32_t magnitude) {
  // |x| = significand * 2^(exponent - 23). An fp32 subnormal has the exponent of field 1 and no
  // leading one.
  const uint32_t field = magnitude >> 23;
  const uint32_t significand = field == 0 ? magnitude : (magnitude & 0x7FFFFFu) | 0x800000u;
  const int exponent = (field == 0 ? 1 : static_cast<int>(field)) - 127;
  // The binade of |x|. For an fp32 subnormal it lies below `exponent`; converting the significand
  // to fp32, which is exact, finds its leading bit.
  int top = exponent;
  if (field == 0) {
    const uint32_t leading = float_bits(static_cast<float>(significand)) >> 23;
    top = significand == 0 ? spec.emin : static_cast<int>(leading) - 127 - 149;
  }
  const int binade = top > spec.emin ? top - spec.emin : 0;
  // The spacing is 2^(emin + binade - man). A valid format has no spacing finer than fp32's, so the
  // significand is shifted right, never left.
  const int shift = spec.emin + binade - spec.man - (exponent - 23);
  Position p{0, 0, static_cast<uint32_t>(binade)};
  if (shift < 32) {
    p.units = significand >> shift;
    p.fraction = static_cast<uint32_t>((uint64_t{significand} << (32 - shift)) & 0xFFFFFFFFu);
  } else if (shift < 64) {
    p.fraction = static_cast<uint32_t>(uint64_t{significand} >> (shift - 32));
  }
  return p;
}

ULP_HD constexpr bool rounds_up(Round mode, const Position& p, uint32_t random) {
  constexpr uint32_t half = 0x80000000u;
  switch (mode) {
    case Round::nearest_even:
      // `units` is the significand as an integer. With m = 0 a normal number has units = 1, odd, so
      // a tie between two powers of two goes to the larger one.
      return p.fraction > half || (p.fraction == half && (p.units & 1u) != 0);
    case Round::nearest_away:
      return p.fraction >= half;
    case Round::toward_zero:
      return false;
    case Round::stochastic:
      return random < p.fraction;
  }
  return false;
}

ULP_HD constexpr uint32_t encode_nan(const CodecSpec& spec, uint32_t magnitude) {
  uint32_t code = ((magnitude & 0x7FFFFFu) >> (23 - spec.man)) & spec.nan_keep;
  if (code == 0) code = spec.nan_quiet;
  return code | spec.nan_code;
}

// fp32 pattern x to a code. `random` is read in stochastic mode only.
ULP_HD constexpr Encoded encode_scalar(const CodecSpec& spec, Round mode, uint32_t x, uint32_t random) {
  const uint32_t magnitude = x & 0x7FFFFFFFu;
  const uint32_t sign = (x >> 31) << spec.sign_shift;
  if (magnitude > 0x7F800000u) return {encode_nan(spec, magnitude) | sign, RangeEvent::nan};
  if (magnitude == 0x7F800000u) return {spec.over_code | sign, RangeEvent::overflow};
  const Position p = locate(spec, magnitude);
  // Codes are consecutive integers along the magnitude axis: each binade adds 2^man to the units,
  // and a carry out of the significand lands on the next exponent by itself. With the exponent
  // unbounded this code may pass the largest one: that is overflow.
  const uint32_t code = (p.binade << spec.man) + p.units + static_cast<uint32_t>(rounds_up(mode, p, random));
  if (code > spec.max_code) return {spec.over_code | sign, RangeEvent::overflow};
  if (code == 0 && magnitude != 0) return {sign, RangeEvent::underflow};
  return {code | sign, RangeEvent::none};
}

// A code to its fp32 pattern; exact.
ULP_HD constexpr uint32_t decode_scalar(const CodecSpec& spec, uint32_t code) {
  const uint32_t sign = (code >> spec.sign_shift) << 31;
  const uint32_t magnitude = code & ((uint32_t{1} << spec.sign_shift) - 1);
  if (magnitude > spec.max_code) {
    return sign | ((magnitude << (23 - spec.man)) & spec.special_keep) | spec.special_code;
  }
  const uint32_t field = magnitude >> spec.man;
  const uint32_t mantissa = magnitude & ((uint32_t{1} << spec.man) - 1);
  const uint32_t units = field == 0 ? mantissa : mantissa | uint32_t{1} << spec.man;
  if (units == 0) return sign;
  // value = units * 2^lsb. The conversion is exact; its exponent field then moves by lsb.
  const int lsb = spec.emin - spec.man + (field == 0 ? 0 : static_cast<int>(field) - 1);
  const uint32_t pattern = float_bits(static_cast<float>(units));
  const int moved = static_cast<int>(pattern >> 23) + lsb;
  if (moved > 0) return sign | static_cast<uint32_t>(moved) << 23 | (pattern & 0x7FFFFFu);
  // An fp32 subnormal: its unit is 2^-149, and lsb >= -149 in a valid format.
  return sign | units << (lsb + 149);
}

}  // namespace ulp
