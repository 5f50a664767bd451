// What the codec must compute, worked out a second time: from the text of the contract, in double
// arithmetic, with none of the implementation's code or ideas. Only vocabulary is borrowed
// (FloatFormat's four fields, Round, Overflow, RangeEvent, RoundKey); none of their member
// functions is called.
//
// Why double is exact here. An input is an fp32 number: at most 24 significant bits, magnitude
// 2^-149 up to 2^128. A format's spacing is a power of two, from 2^-149 up to 2^127. So
//   - |x| / spacing is a product with a power of two: 24 significant bits, far from double's range
//     limits;
//   - its floor and its fraction are runs of those bits, and so is fraction * 2^32: nothing is
//     rounded off;
//   - a count of spacings is at most 2^24, so count * spacing, rounded or not, has at most 25 bits.
// Every sum, product and comparison below is therefore the true one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/numeric/scalar.h"
#include "ulp/numeric/stats.h"

namespace ulp::oracle {

// The contract's validity rule; the arguments are those of make_format.
bool is_valid(int exp, int man, int extra_bias, Specials specials);

bool has_infinity(const FloatFormat& format);
bool has_nan(const FloatFormat& format);
// Number of codes, sign included: 2^(1 + exp + man).
uint64_t code_count(const FloatFormat& format);
// Exponent of the smallest normal number.
int lowest_exponent(const FloatFormat& format);
double largest_number(const FloatFormat& format);
// The number after the largest if the exponent had no bound.
double after_largest(const FloatFormat& format);
// The smallest positive number.
double smallest_number(const FloatFormat& format);
// What a code means: a number with its sign (zero too), an infinity, or a NaN.
double code_value(const FloatFormat& format, uint32_t code);

struct Rounded {
  double value;
  RangeEvent event;
};

// Rounds fp32 numbers to one format in one manner.
class Rounder {
 public:
  // The numbers of one binade: multiples of `spacing`, as if the exponent had no upper bound.
  struct Grid {
    double spacing;
    double per_spacing;  // 1 / spacing
  };

  // An Overflow::infinity that the format does not have is the caller's mistake; the oracle does
  // not look.
  Rounder(const FloatFormat& format, Round mode, Overflow overflow);

  // `random` is read in stochastic mode only.
  Rounded round(float x, uint32_t random) const {
    const double magnitude = std::fabs(static_cast<double>(x));
    if (std::isnan(x)) return {std::copysign(nan_becomes_, x), RangeEvent::nan};
    if (std::isinf(x)) return {std::copysign(overflow_becomes_, x), RangeEvent::overflow};
    if (magnitude == 0) return {x, RangeEvent::none};
    return round_on(grid(std::ilogb(magnitude)), x, random);
  }

  // The grid of the numbers x with floor(log2|x|) = exponent.
  const Grid& grid(int exponent) const { return grids_[exponent - kLowestExponent]; }

  // round() for a finite x whose grid is known already: what a pass over a whole binade calls.
  Rounded round_on(const Grid& grid, float x, uint32_t random) const {
    const double magnitude = std::fabs(static_cast<double>(x));
    const double units = magnitude * grid.per_spacing;
    const double below = std::floor(units);
    const bool up = goes_up(below, units - below, random);
    const double rounded = (up ? below + 1 : below) * grid.spacing;
    if (rounded > largest_) return {std::copysign(overflow_becomes_, x), RangeEvent::overflow};
    const bool lost = rounded == 0 && magnitude != 0;
    return {std::copysign(rounded, x), lost ? RangeEvent::underflow : RangeEvent::none};
  }

 private:
  bool goes_up(double below, double fraction, uint32_t random) const {
    switch (mode_) {
      case Round::nearest_even:
        return fraction > 0.5 || (fraction == 0.5 && tie_goes_up(below));
      case Round::nearest_away:
        return fraction >= 0.5;
      case Round::toward_zero:
        return false;
      case Round::stochastic:
        return static_cast<double>(random) < std::floor(fraction * 0x1p32);
    }
    return false;
  }
  bool tie_goes_up(double below) const;

  static constexpr int kLowestExponent = -149, kHighestExponent = 127;  // of fp32 numbers

  int mantissa_bits_;
  std::array<Grid, kHighestExponent - kLowestExponent + 1> grids_;  // by exponent: ldexp is slow
  double largest_, overflow_becomes_, nan_becomes_;
  Round mode_;
};

// Rounder for a single number.
Rounded round(const FloatFormat& format, Round mode, Overflow overflow, float x, uint32_t random = 0);

// A positive finite number between its neighbours in the format, the exponent unbounded.
struct Bracket {
  double below, above;
  double fraction;     // (x - below) / (above - below), in [0, 1)
  uint64_t threshold;  // floor(fraction * 2^32): how many of the 2^32 random words round x up
};
Bracket bracket(const FloatFormat& format, double x);

// All codes of a format of at most 16 bits, listed.
class CodeTable {
 public:
  explicit CodeTable(const FloatFormat& format);
  double value(uint32_t code) const { return values_[code]; }
  size_t size() const { return values_.size(); }
  // The code of a number or an infinity, looked up among them all; throws std::out_of_range if it
  // has none.
  uint32_t code(double value) const;
  // The numbers from 0 to the largest, ascending.
  std::vector<double> magnitudes() const;

 private:
  std::vector<double> values_;  // by code
  // Codes without a sign, NaN left out, ascending.
  std::vector<std::pair<double, uint32_t>> by_value_;
};

// What a pass over the inputs reports: the events that the oracle saw, and the inputs' own facts.
class Tally {
 public:
  void add(float x, RangeEvent event);
  void merge(const Tally& other);
  const EncodeStats& stats() const { return stats_; }

 private:
  EncodeStats stats_;
};

ExponentHistogram histogram_of(std::span<const float> inputs);

// Philox 4x32-10 after the paper: ten rounds of two multiplications, the key raised between rounds.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);
// The contract's random words of the elements first, first + 1, ...
std::vector<uint32_t> random_words(const RoundKey& key, uint64_t first, size_t n);

// Codes packed without gaps, least significant bit first, and unpacked again.
std::vector<uint8_t> pack(int bits, std::span<const uint32_t> codes);
std::vector<uint32_t> unpack(int bits, std::span<const uint8_t> bytes, size_t n);

// Same number, with the same sign where it is zero; or both NaN.
bool same(double a, double b);

}  // namespace ulp::oracle
