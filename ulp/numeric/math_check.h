// What the quick and the slow test of math.h share: the table of functions, what libm says of each,
// and errors counted in units in the last place of fp32. Only tests include this.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ulp/numeric/math.h"

namespace ulp {

struct MathFunction {
  const char* name;
  float (*near)(float);
  double (*exact)(double);
  long double (*exacter)(long double);
  double bound;  // as math.h states it, in units in the last place
};

template <typename Real>
Real exact_sigmoid(Real x) {
  return Real{1} / (Real{1} + std::exp(-x));
}
template <typename Real>
Real exact_log1p_exp(Real x) {
  return (x > 0 ? x : Real{0}) + std::log1p(std::exp(-std::fabs(x)));
}

// Lambdas, so that a loop over one of them can be inlined.
inline constexpr MathFunction kMathFunctions[] = {
    {"exp_near", exp_near, [](double x) { return std::exp(x); }, [](long double x) { return std::exp(x); },
     0.500001},
    {"log_near", log_near, [](double x) { return std::log(x); }, [](long double x) { return std::log(x); },
     0.500001},
    {"tanh_near", tanh_near, [](double x) { return std::tanh(x); },
     [](long double x) { return std::tanh(x); }, 0.500002},
    {"sigmoid_near", sigmoid_near, exact_sigmoid<double>, exact_sigmoid<long double>, 0.500001},
    {"erf_near", erf_near, [](double x) { return std::erf(x); }, [](long double x) { return std::erf(x); },
     0.500005},
    {"log1p_exp", log1p_exp, exact_log1p_exp<double>, exact_log1p_exp<long double>, 0.500001},
};

// |got - exact| in units of fp32's spacing at `exact`. An infinity counts as 2^128, the number it
// stands for when rounding to nearest; a NaN where there should be none, or none where there should
// be one, as infinity.
template <typename Real>
double ulps_off(float got, Real exact) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (std::isnan(exact) || std::isnan(got)) {
    return std::isnan(exact) && std::bit_cast<uint32_t>(got) == kNanBits ? 0 : kInfinity;
  }
  if (exact == 0 || std::isinf(exact)) {
    // A double's exp has an end before a long double's; fp32's comes before both.
    return static_cast<Real>(got) == exact ? 0 : kInfinity;
  }
  const int field = static_cast<int>(std::bit_cast<uint64_t>(static_cast<double>(exact)) >> 52 & 0x7FF);
  if (std::isinf(got)) {
    got = std::copysign(0x1p127f, got);
    return std::fabs(exact) >= 0x1p128 ? (got > 0 ? 0 : kInfinity)
                                       : static_cast<double>(std::fabs(2 * Real{got} - exact) * 0x1p-104);
  }
  if (field - 1023 > 127) return kInfinity;  // finite, but should not be
  const int lsb = (field - 1023 < -126 ? -126 : field - 1023) - 23;
  const double per_unit = std::bit_cast<double>(static_cast<uint64_t>(1023 - lsb) << 52);
  return static_cast<double>(std::fabs(static_cast<Real>(got) - exact) * static_cast<Real>(per_unit));
}

}  // namespace ulp
