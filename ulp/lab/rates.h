// Code that all benchmarks share: checks of counts, spreads of measured values, rates as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ulp {

// Throws an Error for a number of steps below `least`, or more than anyone waits for.
void check_count(std::string_view what, int64_t count, int64_t least);

struct RateSpread {
  double median = 0, least = 0, most = 0;
};
// There must be a value.
RateSpread spread(std::vector<double> values);

// Three digits that count, whether a machine does a billion operations a second or a quadrillion;
// "-" where there is none.
std::string rate_text(double rate);
// In percent.
std::string share_text(double rate, double of);

}  // namespace ulp
