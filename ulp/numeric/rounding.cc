#include "ulp/numeric/rounding.h"

#include "ulp/base/error.h"
#include "ulp/numeric/scalar.h"

namespace ulp {
namespace {

struct RoundName {
  std::string_view name;
  Round mode;
};

constexpr RoundName kRoundNames[] = {
    {"even", Round::nearest_even},
    {"away", Round::nearest_away},
    {"zero", Round::toward_zero},
    {"stochastic", Round::stochastic},
};

}  // namespace

Round parse_round(std::string_view name) {
  for (const RoundName& row : kRoundNames) {
    if (row.name == name) return row.mode;
  }
  fail("rounding", "unknown rounding '{}'; known: even, away, zero, stochastic", name);
}

std::string_view round_name(Round mode) {
  for (const RoundName& row : kRoundNames) {
    if (row.mode == mode) return row.name;
  }
  return "?";
}

Overflow parse_overflow(std::string_view name) {
  if (name == "saturate") return Overflow::saturate;
  if (name == "inf") return Overflow::infinity;
  fail("rounding", "unknown overflow '{}'; known: saturate, inf", name);
}

CodecSpec make_spec(const FloatFormat& format, Overflow overflow) {
  if (overflow == Overflow::infinity && !format.has_inf()) {
    fail("rounding",
         "{} has no infinity to overflow to; use saturate, or a format that has one (fp16, bf16, e5m2)",
         format_name(format));
  }
  CodecSpec spec{};
  spec.man = format.man;
  spec.emin = format.emin();
  spec.sign_shift = format.exp + format.man;
  spec.max_code = format.max_code();
  // In an ieee format the code after the largest number is infinity.
  spec.over_code = overflow == Overflow::infinity ? spec.max_code + 1 : spec.max_code;
  if (format.specials == Specials::ieee && format.has_nan()) {
    spec.nan_keep = (1u << format.man) - 1;
    spec.nan_code = spec.max_code + 1;
    spec.nan_quiet = 1u << (format.man - 1);
  } else {
    // fn has one NaN, the code after the largest number; a format without NaN stores the largest number.
    spec.nan_code = format.has_nan() ? spec.max_code + 1 : spec.max_code;
  }
  if (format.specials == Specials::ieee) {
    spec.special_keep = 0x7FFFFFu;
    spec.special_code = 0x7F800000u;
  } else {
    spec.special_code = 0x7FC00000u;
  }
  return spec;
}

}  // namespace ulp
