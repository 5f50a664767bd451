// exp and log in double, to about 2^-42 of themselves, by the steps of ulp/numeric/math.h: what
// sums of exponentials are made with, so that they are rounded to fp32 once. The same bits in any
// vectorised loop.
#pragma once

#include "ulp/numeric/math.h"

namespace ulp {

// e^x for x <= 700; 0 comes out as something below 2^-1000. A NaN stays one.
ULP_HD constexpr double exp_wide(double x) {
  const auto e = detail::exponential(x < -700.0 ? -700.0 : x);
  return e.scale + e.scale * e.fraction;
}

// The logarithm of a positive normal number; a NaN stays one.
ULP_HD constexpr double log_wide(double x) {
  const uint64_t bits = detail::double_bits(x);
  const uint64_t field = (bits - detail::kRootHalfBits + detail::kOneBits) >> 52;
  const double m = detail::bits_double(bits - (field << 52) + detail::kOneBits);
  const double e = detail::bits_double(0x4330000000000000u | field) - (0x1p52 + 1023);
  const double log = e * detail::kLn2 + detail::log_of_ratio((m - 1.0) / (m + 1.0));
  return x == x ? log : x;
}

}  // namespace ulp
