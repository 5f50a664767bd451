#include "ulp/numeric/rounding.h"

#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

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
  std::vector<std::string_view> known;
  for (const RoundName& row : kRoundNames) known.push_back(row.name);
  fail("rounding", "unknown rounding '{}'; {}known: {}", name, nearest_hint(name, known),
       fmt::join(known, ", "));
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

}  // namespace ulp
