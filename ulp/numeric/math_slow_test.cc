// Every function of math.h on every fp32 pattern that it does not map to a constant or, as near as
// makes no difference, to a straight line; elsewhere one in 61. The bounds that math.h states, the
// largest errors found, and that no result is below the one before it. The slow suite: about a
// minute on two cores.
//
// The sweep compares with double libm, whose own error is about 2^-28 of what is measured. The
// worst argument is measured again in long double, and that is the figure printed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "ulp/base/parallel.h"
#include "ulp/numeric/math_check.h"

namespace ulp {
namespace {

constexpr uint32_t kSignBit = 0x80000000u, kInfinity = 0x7F800000u;
constexpr size_t kGrain = size_t{1} << 18;

struct Worst {
  double error = -1;
  uint32_t pattern = 0;
  uint64_t tried = 0, falls = 0;

  void merge(const Worst& other) {
    if (other.error > error) std::tie(error, pattern) = std::pair(other.error, other.pattern);
    tried += other.tried;
    falls += other.falls;
  }
};

// Patterns first, first + stride, .. below `end`, all of one sign, so in the order of their
// magnitudes.
Worst sweep(const MathFunction& f, uint32_t first, uint32_t end, uint32_t stride) {
  Worst all;
  std::mutex merging;
  const bool negative = first >= kSignBit;
  parallel_for((end - first + stride - 1) / stride, kGrain, [&](size_t from, size_t to) {
    Worst mine;
    float last =
        f.near(std::bit_cast<float>(static_cast<uint32_t>(first + (from > 0 ? from - 1 : 0) * stride)));
    for (size_t i = from; i < to; ++i) {
      const uint32_t pattern = static_cast<uint32_t>(first + i * stride);
      const float x = std::bit_cast<float>(pattern), got = f.near(x);
      const double error = ulps_off(got, f.exact(static_cast<double>(x)));
      if (error > mine.error) std::tie(mine.error, mine.pattern) = std::pair(error, pattern);
      mine.falls += negative ? got > last : got < last;
      last = got;
      ++mine.tried;
    }
    const std::lock_guard lock(merging);
    all.merge(mine);
  });
  return all;
}

class MathOfAllFloats : public testing::TestWithParam<MathFunction> {};

TEST_P(MathOfAllFloats, IsWithinTheStatedBoundAndMonotone) {
  const MathFunction& f = GetParam();
  // A logarithm has every positive number for its argument, and no line to stand in for it.
  const bool log = f.near == log_near;
  const uint32_t low = log ? 1 : std::bit_cast<uint32_t>(0x1p-27f),
                 high = log ? kInfinity : std::bit_cast<uint32_t>(128.0f);
  Worst worst;
  for (const uint32_t sign : {0u, kSignBit}) {
    worst.merge(sweep(f, sign, sign + low, 61));
    worst.merge(sweep(f, sign + low, sign + high, log && sign != 0 ? 61 : 1));
    worst.merge(sweep(f, sign + high, sign + kInfinity, 61));
    worst.merge(sweep(f, sign + kInfinity, sign + kInfinity + 1, 1));
  }
  const float x = std::bit_cast<float>(worst.pattern);
  const double again = ulps_off(f.near(x), f.exacter(static_cast<long double>(x)));
  fmt::print(stderr, "{}: {} arguments, worst {:.8f} ulp at {:#010x} = {:a}\n", f.name, worst.tried, again,
             worst.pattern, x);
  EXPECT_LE(worst.error, f.bound) << x;
  EXPECT_NEAR(worst.error, again, 1e-7) << x;
  EXPECT_EQ(worst.falls, 0u);
}

INSTANTIATE_TEST_SUITE_P(Functions, MathOfAllFloats, testing::ValuesIn(kMathFunctions),
                         [](const auto& function) { return std::string(function.param.name); });

}  // namespace
}  // namespace ulp
