// Rounding fp32 values to 16-bit codes, with or without extra bits, and back, in a few integer and
// fp32 operations without branches, so that the compiler vectorises the loops of step_loops.cc. The
// same bits as scalar.h, for the formats that fits() accepts, and for values whose only NaN is
// kNanBits (math.h).
#pragma once

#include <cstdint>

#include "ulp/base/device.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/nearest_even.h"
#include "ulp/numeric/scalar.h"

namespace ulp::step {

inline constexpr uint32_t kInfinityPattern = 0x7F800000u;
// 2^97, beyond every format that does not have fp32's exponents.
inline constexpr uint32_t kFar = 0x70000000u;

// Masks where ?: might become a branch.
constexpr uint32_t choose(bool which, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(which);
  return (a & mask) | (b & ~mask);
}
constexpr uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }
constexpr uint32_t most(uint32_t a, uint32_t b) { return a > b ? a : b; }

// A codec's constants in the form that the loops use.
struct Codes {
  uint32_t man, shift;      // mantissa bits of a code; those of fp32 that it lacks
  EvenByPattern even;       // for formats with fp32's exponents
  EvenByAdder adder;        // for formats with exponents of their own,
  EvenByAdder either_sign;  // and for numbers with their signs
  uint32_t max_code, over_code, nan_code;
  uint32_t sign_down;  // from bit 31 to the code's
  uint32_t lowest;     // pattern of the smallest normal number
  uint32_t first_normal;
  uint32_t largest, smallest;  // patterns of the largest number and the smallest positive one

  // fp32's exponents: a code is the top of a pattern.
  static bool same_exponents(const CodecSpec& spec) {
    return spec.emin == -126 && spec.sign_shift - spec.man == 8;
  }
  // IEEE specials, so that NaN has a code of its own; values that the adder can round
  // (nearest_even.h).
  static bool fits(const CodecSpec& spec) {
    const bool ieee = spec.nan_keep != 0 && spec.special_keep != 0;
    const bool near = spec.emin > -126 && spec.man <= 22 && decode_scalar(spec, spec.max_code) < kFar;
    return ieee && spec.man >= 1 && (same_exponents(spec) || near);
  }

  static Codes of(const CodecSpec& spec) {
    Codes c{};
    c.man = static_cast<uint32_t>(spec.man);
    c.shift = 23 - c.man;
    c.even = EvenByPattern::dropping(c.shift);
    c.max_code = spec.max_code;
    c.over_code = spec.over_code;
    c.nan_code = encode_nan(spec, kNanBits);
    c.sign_down = static_cast<uint32_t>(31 - spec.sign_shift);
    c.lowest = static_cast<uint32_t>(spec.emin + 127) << 23;
    c.adder = EvenByAdder::of(c.shift, c.lowest);
    c.either_sign = c.adder.with_half_again();
    c.first_normal = 1u << c.man;
    c.largest = decode_scalar(spec, spec.max_code);
    c.smallest = decode_scalar(spec, 1);
    return c;
  }

  // Magnitude codes with unbounded exponents: codes above max_code are overflows, or NaN.
  template <bool same>
  constexpr uint32_t nearest(uint32_t magnitude) const {
    if constexpr (same) {
      return even.code(magnitude);
    } else {
      // Values far beyond every such format are clamped, so that the adder's sum stays finite.
      const uint32_t near = least(magnitude, kFar);
      return adder.code(bits_float(near), adder.spacings(near), shift);
    }
  }

  template <bool same>
  constexpr uint32_t stochastic(uint32_t magnitude, uint32_t random) const {
    if constexpr (same) {
      return (magnitude >> shift) + static_cast<uint32_t>(random < (magnitude << (32 - shift)));
    } else {
      // As in locate() of scalar.h. An fp32 subnormal has field 1 and no leading one: both cases
      // are magnitude - (field - 1) 2^23.
      const uint32_t near = least(magnitude, kInfinityPattern);
      const uint32_t field = most(near >> 23, 1), top = most(field, lowest >> 23);
      const uint32_t significand = near - ((field - 1) << 23);
      const uint32_t down = top - field + shift, close = least(down, 31);
      const uint32_t units = significand >> close;
      const uint32_t far = least(most(down, 32) - 32, 31);
      const uint32_t fraction = choose(down > 31, significand >> far, (significand << 1) << (31 - close));
      return ((top - (lowest >> 23)) << man) + units + static_cast<uint32_t>(random < fraction);
    }
  }

  // What is stored for it, without its sign.
  constexpr uint32_t stored(uint32_t magnitude, uint32_t code) const {
    return choose(magnitude > kInfinityPattern, nan_code, least(code, over_code));
  }

  template <bool same>
  constexpr uint32_t pattern(uint32_t code) const {
    const uint32_t moved = code << shift;
    if constexpr (same) {
      return moved;
    } else {
      // A subnormal gets its missing leading one by standing in the lowest binade, and loses it
      // again.
      const uint32_t normal = moved + lowest - (1u << 23);
      const uint32_t subnormal = float_bits(bits_float(moved + lowest) - bits_float(lowest));
      const uint32_t value = choose(code < first_normal, subnormal, normal);
      return choose(code > max_code, (moved & 0x7FFFFFu) | kInfinityPattern, value);
    }
  }
};

// Range events of a loop, few enough for 32 bits; `beyond` counts overflows and NaN.
struct Tally {
  uint32_t beyond = 0, underflow = 0, amax = 0;

  constexpr void add(const Codes& codes, uint32_t magnitude, uint32_t code) {
    beyond += static_cast<uint32_t>(code > codes.max_code);
    underflow += static_cast<uint32_t>(code == 0) & static_cast<uint32_t>(magnitude != 0);
    amax = most(amax, choose(magnitude > kInfinityPattern, 0, magnitude));
  }
};

// The two roundings of kahan_update (rule.h). Like everything that functions of other folders call
// they are defined here, outside of what is compiled for each vector unit: such functions are
// inlined into loops of any unit, but not the other way round.
//
// To nearest, for formats with fp32's exponents; others use Nearest.
struct NearSame {
  explicit NearSame(const Codes& codes) : even(codes.even), over(codes.over_code << codes.shift) {}

  constexpr float operator()(float x) const {
    const uint32_t pattern = float_bits(x), magnitude = pattern & 0x7FFFFFFFu, sign = pattern ^ magnitude;
    const uint32_t rounded = even.number(magnitude);
    return bits_float(choose(magnitude > kInfinityPattern, kNanBits, least(rounded, over) | sign));
  }

  EvenByPattern even;
  uint32_t over;
};

// The sum itself, whose code and events are kept.
template <bool same, bool stochastic>
struct RoundedSum {
  const Codes& codes;
  uint32_t random;
  Tally& tally;
  uint32_t& stored;

  constexpr float operator()(float sum) const {
    const uint32_t pattern = float_bits(settle_nan(sum)), magnitude = pattern & 0x7FFFFFFFu;
    const uint32_t sign = pattern ^ magnitude;
    const uint32_t code =
        stochastic ? codes.stochastic<same>(magnitude, random) : codes.nearest<same>(magnitude);
    tally.add(codes, magnitude, code);
    const uint32_t kept = codes.stored(magnitude, code);
    stored = kept | sign >> codes.sign_down;
    return bits_float(codes.pattern<same>(kept) | sign);
  }
};

// Most pieces are in range: no NaN, nothing beyond the largest number, nothing but zeros below the
// smallest. Then rounding is a few operations on whole patterns, and there is no event to count. A
// loop for pieces in range keeps the extremes of what it rounds; if these show that the piece was
// not in range, the general loop recomputes it.
struct Extremes {
  uint32_t largest = 0, below = ~0u;  // magnitudes; the smallest nonzero one, minus 1

  constexpr void add(uint32_t magnitude) {
    largest = most(largest, magnitude);
    below = least(below, magnitude - 1);
  }
  constexpr bool in_range(const Codes& codes) const {
    return largest <= codes.largest && (below == ~0u || below + 1 >= codes.smallest);
  }
};

// A value of the format, both ways.
struct Rounded {
  uint32_t pattern, code;
};

// Rounds patterns with their signs to values of the format, if they are in range. `kShift`, if not
// negative, is that of `codes`, known at compile time.
template <bool same, int kShift = -1>
struct InRangeRound {
  const Codes& codes;

  constexpr uint32_t shift() const { return kShift >= 0 ? static_cast<uint32_t>(kShift) : codes.shift; }

  constexpr Rounded nearest(uint32_t pattern) const {
    if constexpr (kShift == 0) {
      return {pattern, pattern};
    } else if constexpr (same) {
      const EvenByPattern even = kShift > 0 ? EvenByPattern::dropping(shift()) : codes.even;
      return {even.number(pattern), even.code(pattern)};
    } else {
      const uint32_t sign = pattern & 0x80000000u, many = codes.adder.spacings(pattern);
      const float magnitude = bits_float(pattern ^ sign);
      return {float_bits(EvenByAdder::number(magnitude, many)) | sign,
              codes.adder.code(magnitude, many, shift()) | sign >> codes.sign_down};
    }
  }

  // The value alone.
  constexpr float nearest(float x) const {
    if constexpr (same) {
      return bits_float(nearest(float_bits(x)).pattern);
    } else {
      const uint32_t pattern = float_bits(x), many = codes.either_sign.spacings(pattern);
      return bits_float(float_bits(EvenByAdder::number(x, many)) | (pattern & 0x80000000u));
    }
  }

  constexpr Rounded stochastic(uint32_t pattern, uint32_t random) const {
    if constexpr (same) {
      const uint32_t code =
          (pattern >> shift()) + static_cast<uint32_t>(random < (pattern << (32 - shift())));
      return {code << shift(), code};
    } else {
      // As in Codes::stochastic: above the smallest number no shift exceeds 31, and for zero any
      // shift works.
      const uint32_t sign = pattern & 0x80000000u, magnitude = pattern ^ sign,
                     least_field = codes.lowest >> 23;
      const uint32_t field = most(magnitude >> 23, 1), top = most(field, least_field);
      const uint32_t significand = magnitude - ((field - 1) << 23), down = least(top - field + shift(), 31);
      const uint32_t fraction = (significand << 1) << (31 - down);
      const uint32_t code = ((top - least_field) << codes.man) + (significand >> down) +
                            static_cast<uint32_t>(random < fraction);
      return {finite(code) | sign, code | sign >> codes.sign_down};
    }
  }

  // Codes of the format's values, and back.
  constexpr uint32_t code(float number) const {
    return same ? float_bits(number) >> shift() : nearest(float_bits(number)).code;
  }
  constexpr uint32_t pattern(uint32_t code) const {
    if constexpr (same) return code << shift();
    const uint32_t sign = code << codes.sign_down & 0x80000000u;
    return finite(code ^ sign >> codes.sign_down) | sign;
  }

 private:
  constexpr uint32_t finite(uint32_t code) const {
    const uint32_t moved = code << shift();
    const uint32_t subnormal = float_bits(bits_float(moved + codes.lowest) - bits_float(codes.lowest));
    return choose(code < codes.first_normal, subnormal, moved + codes.lowest - (1u << 23));
  }
};

// fp32 arithmetic for pieces in range: a NaN puts the piece out of range, so none is settled
// (math.h).
struct Unsettled {
  float value;
  constexpr operator float() const { return value; }  // NOLINT(google-explicit-constructor): is one
  friend constexpr float settle_nan(Unsettled x) { return x.value; }
};
struct InRangeWide {
  static constexpr bool kNarrow = false;
  constexpr Unsettled operator()(float x) const { return {x}; }
};

// The roundings of kahan_sum.
template <typename InRange>
struct InRangeNear {
  const InRange& rounding;
  constexpr float operator()(float x) const { return rounding.nearest(x); }
};

template <bool stochastic, typename InRange>
struct InRangeSum {
  const InRange& rounding;
  uint32_t random;
  Extremes& extremes;
  uint32_t& code;
  constexpr float operator()(float sum) const {
    const uint32_t pattern = float_bits(sum);
    extremes.add(pattern & 0x7FFFFFFFu);
    const Rounded rounded = stochastic ? rounding.stochastic(pattern, random) : rounding.nearest(pattern);
    code = rounded.code;
    return bits_float(rounded.pattern);
  }
};

}  // namespace ulp::step
