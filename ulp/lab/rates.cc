#include "ulp/lab/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"

namespace ulp {

void check_count(std::string_view what, int64_t count, int64_t least) {
  constexpr int64_t kMost = 1'000'000;
  if (count < least || count > kMost)
    fail("bench", "the number of {} must be from {} to {}, got {}", what, least, kMost, count);
}

RateSpread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

std::string rate_text(double rate) {
  if (!(rate > 0)) return "-";
  const int digits = std::clamp(2 - static_cast<int>(std::floor(std::log10(rate))), 0, 6);
  return fmt::format("{:.{}f}", rate, digits);
}

std::string share_text(double rate, double of) {
  return rate > 0 && of > 0 ? fmt::format("{:.1f}%", 100 * rate / of) : "-";
}

}  // namespace ulp
