// The logarithm and the power behind S2FP8 on every argument they have, against libm: the bounds
// that ulp/numeric/power.h states, and the largest errors found. The slow suite: about two minutes
// on two cores.
//
// The sweep compares with double libm, whose own error, below 2^-45 in a logarithm of at most 149
// and below 2^-52 in a power near 1, is 2^-21 and less of what is measured. The worst arguments are
// measured again in long double, and those are the figures printed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

#include "ulp/base/parallel.h"
#include "ulp/numeric/power.h"

namespace ulp {
namespace {

// As stated in power.h.
constexpr double kLogBound = 0.71;               // units of 2^-22
const double kPowerBound = std::exp2(-23.5);     // relative
constexpr uint64_t kInfinityBits = 0x7F800000u;  // the first pattern past the finite ones
constexpr uint64_t kHalfBits = 0x3F000000u;      // 1/2
constexpr uint32_t kSignBit = 0x80000000u;
constexpr size_t kGrain = size_t{1} << 20;

struct Worst {
  double error = -1;
  uint32_t pattern = 0;
  uint64_t tried = 0;

  void see(double e, uint32_t p) {
    ++tried;
    // A NaN must not pass as small.
    if (e > error || std::isnan(e)) *this = {e, p, tried};
  }
  void merge(const Worst& other) {
    const uint64_t both = tried + other.tried;
    if (other.error > error || std::isnan(other.error)) *this = other;
    tried = both;
  }
};

// The worst of error(pattern) over the patterns begin .. end - 1, which each thread sees in order
// with an error of its own making.
template <typename MakeError>
Worst worst_of(uint64_t begin, uint64_t end, const MakeError& make_error) {
  Worst all;
  std::mutex merging;
  parallel_for(end - begin, kGrain, [&](size_t from, size_t to) {
    Worst mine;
    auto error = make_error(static_cast<uint32_t>(begin + from));
    for (uint64_t p = begin + from; p < begin + to; ++p) {
      mine.see(error(static_cast<uint32_t>(p)), static_cast<uint32_t>(p));
    }
    const std::lock_guard lock(merging);
    all.merge(mine);
  });
  return all;
}

template <typename Real>
Real log_error(uint32_t pattern, int32_t got) {
  const Real exact = std::log2(static_cast<Real>(std::bit_cast<float>(pattern))) * Real{1 << 22};
  return std::fabs(static_cast<Real>(got) - exact);
}

// Errors of logarithms, and infinity where one is below its predecessor's: S2FP8 takes the largest
// logarithm for that of the largest magnitude.
auto log_errors(uint32_t first) {
  return [last = log2_fixed(first > 1 ? first - 1 : 1)](uint32_t pattern) mutable {
    const int32_t got = log2_fixed(pattern), before = std::exchange(last, got);
    return got < before ? INFINITY : log_error<double>(pattern, got);
  };
}

template <typename Real>
Real power_error(uint32_t pattern) {
  const float r = std::bit_cast<float>(pattern);
  return std::fabs(static_cast<Real>(exp2_near(r)) / std::exp2(static_cast<Real>(r)) - 1);
}

// The sweep's double and the long double of the worst argument must tell the same story.
void report(const std::string& what, const Worst& worst, long double again, double unit) {
  EXPECT_NEAR(worst.error / unit, static_cast<double>(again) / unit, 1e-6);
  fmt::print(stderr, "{}: {} arguments, worst {:.6f} ({:a}) at {:#010x} = {:a}\n", what, worst.tried,
             static_cast<double>(again) / unit, static_cast<double>(again), worst.pattern,
             std::bit_cast<float>(worst.pattern));
}

TEST(Power, LogarithmsOfAllPositiveNumbersGrowAndAreWithinTheStatedBound) {
  const Worst subnormal = worst_of(1, 0x00800000u, log_errors);
  const Worst normal = worst_of(0x00800000u, kInfinityBits, log_errors);
  EXPECT_EQ(subnormal.tried + normal.tried, kInfinityBits - 1);
  for (const Worst& worst : {subnormal, normal}) {
    const long double again = log_error<long double>(worst.pattern, log2_fixed(worst.pattern));
    report("log2_fixed, units of 2^-22", worst, again, 1);
    EXPECT_LE(again, kLogBound);
  }
}

TEST(Power, LogarithmsOfPowersOfTwoAreExact) {
  for (int e = -149; e <= 127; ++e) {
    EXPECT_EQ(log2_fixed(std::bit_cast<uint32_t>(std::ldexp(1.0f, e))), e * (1 << kLogFraction)) << e;
  }
}

TEST(Power, PowersOfAllArgumentsAreWithinTheStatedBound) {
  const auto errors = [](uint32_t) { return power_error<double>; };
  const Worst positive = worst_of(0, kHalfBits + 1, errors);
  const Worst negative = worst_of(kSignBit, kSignBit + kHalfBits + 1, errors);
  EXPECT_EQ(positive.tried + negative.tried, 2 * (kHalfBits + 1));
  for (const Worst& worst : {positive, negative}) {
    const long double again = power_error<long double>(worst.pattern);
    report("exp2_near, relative, units of 2^-23.5", worst, again, kPowerBound);
    fmt::print(stderr, "  = 2^{:.4f}\n", static_cast<double>(std::log2(again)));
    EXPECT_LE(again, kPowerBound);
  }
}

// Y = 2^n exp2_near(r). Where e5m2 has borders: halfway between the significands of normal numbers,
// here as 1/sqrt(2) <= s <= sqrt(2), and of subnormal ones. On a border s goes to the even code.
struct Border {
  float significand;
  bool above;  // s itself has the lower code
};
constexpr Border kBorders[] = {{0.8125f, true}, {0.9375f, false}, {1.125f, true}, {1.375f, false},
                               {1.0f, true},    {0.75f, false},   {1.25f, true},  {0.875f, false}};

// S2FP8 finds codes by the ranges of magnitudes that have them. So no argument may have a lower code
// than a smaller one, though its power may be smaller.
TEST(Power, NoPowerIsOnTheWrongSideOfACodesBorder) {
  for (const Border& border : kBorders) {
    const auto reached = [&](float r) {
      const float s = exp2_near(r);
      return border.above ? s > border.significand : s >= border.significand;
    };
    // The first argument that reaches it, in the order of numbers, from -1/2 on.
    const auto argument = [](int64_t place) {
      const auto bits = static_cast<uint32_t>(place < 0 ? -place : place);
      return std::bit_cast<float>(place < 0 ? bits | kSignBit : bits);
    };
    const auto half = static_cast<int64_t>(kHalfBits);
    int64_t low = -half, high = half;
    ASSERT_FALSE(reached(argument(low)));
    ASSERT_TRUE(reached(argument(high)));
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (reached(argument(middle)) ? high : low) = middle;
    }
    std::atomic<uint64_t> wrong = 0, tried = 0;
    parallel_for(static_cast<size_t>(2 * half + 1), kGrain, [&](size_t from, size_t to) {
      uint64_t mine = 0;
      for (size_t k = from; k < to; ++k) {
        const int64_t place = static_cast<int64_t>(k) - half;
        mine += reached(argument(place)) != (place >= high) ? 1 : 0;
      }
      wrong += mine;
      tried += to - from;
    });
    EXPECT_EQ(wrong, 0u) << border.significand;
    EXPECT_EQ(tried, 2 * kHalfBits + 1);
  }
}

TEST(Power, PowersStayBetweenTheRootsOfAHalfAndTwo) {
  // s2fp8_squeeze adds an exponent to the pattern of the power, s2fp8_restore multiplies it twice:
  // both count on 1/sqrt(2) and sqrt(2), give or take the stated error.
  EXPECT_EQ(exp2_near(0.0f), 1.0f);
  EXPECT_EQ(exp2_near(-0.0f), 1.0f);
  for (const float r : {-0.5f, 0.5f}) {
    EXPECT_NEAR(exp2_near(r), std::exp2(static_cast<double>(r)), 2 * kPowerBound) << r;
  }
}

}  // namespace
}  // namespace ulp
