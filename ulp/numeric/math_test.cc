// The functions of math.h against long double libm on a sweep through all patterns, at their edges,
// and in loops that the compiler makes vector code of. math_slow_test tries every argument.
#include "ulp/numeric/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/numeric/math_check.h"

namespace ulp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kTiny = 0x1p-149f;  // the smallest positive number

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// The worst in units in the last place over patterns 0, stride, 2 stride, ..
struct Sweep {
  double error = -1;
  uint32_t pattern = 0;
};

constexpr uint64_t kStride = 2039;  // prime, so that every low bit and every exponent is met
constexpr size_t kSweepCount = ((uint64_t{1} << 32) + kStride - 1) / kStride;
float sweep_argument(size_t i) { return float_of(static_cast<uint32_t>(i * kStride)); }

class Math : public testing::TestWithParam<MathFunction> {};

TEST_P(Math, SweepIsWithinTheStatedBound) {
  const MathFunction& f = GetParam();
  constexpr size_t kGrain = 1 << 14;
  std::vector<Sweep> worst((kSweepCount + kGrain - 1) / kGrain);
  parallel_for(kSweepCount, kGrain, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const float x = sweep_argument(i);
      const double error = ulps_off(f.near(x), f.exacter(static_cast<long double>(x)));
      if (error > worst[i / kGrain].error) worst[i / kGrain] = {error, bits_of(x)};
    }
  });
  for (const Sweep& w : worst) {
    EXPECT_LE(w.error, f.bound) << f.name << " of " << float_of(w.pattern);
  }
}

TEST_P(Math, EveryNanBecomesTheOneNan) {
  for (const uint32_t nan : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    EXPECT_EQ(bits_of(GetParam().near(float_of(nan))), kNanBits) << std::hex << nan;
  }
}

// All six grow. Neighbours of the places where a result saturates, overflows or vanishes, and where
// the computation changes its scale.
TEST_P(Math, NeighboursDoNotFall) {
  const MathFunction& f = GetParam();
  const float places[] = {0.17328679f, 0.34657359f, 0.41421356f, 0.70710677f, 0.88137358f, 1.0f,
                          1.0397208f,  1.4142135f,  3.5f,        3.9192059f,  4.0f,        8.664339f,
                          9.0109f,     9.0109129f,  10.0f,       15.942385f,  16.63553f,   17.32868f,
                          87.33655f,   88.722839f,  103.27893f,  103.97208f,  110.0f,      0x1p-25f,
                          0x1p-24f,    0x1p-126f,   0x1p-13f,    2.0f};
  constexpr int kAround = 1500;
  for (const float place : places) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      float last = std::numeric_limits<float>::quiet_NaN();
      for (int i = -kAround; i <= kAround; ++i) {
        // A step up in magnitude is a step down for a negative number.
        const uint32_t pattern = (bits_of(place) + static_cast<uint32_t>(sign == 0 ? i : -i)) | sign;
        const float got = f.near(float_of(pattern));
        ASSERT_FALSE(got < last) << f.name << " falls at " << float_of(pattern);
        ASSERT_LE(ulps_off(got, f.exacter(static_cast<long double>(float_of(pattern)))), f.bound)
            << f.name << " of " << float_of(pattern);
        last = got;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, Math, testing::ValuesIn(kMathFunctions),
                         [](const auto& function) { return std::string(function.param.name); });

struct Case {
  float x, result;
};

void expect_bits(float (*f)(float), const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(bits_of(f(c.x)), bits_of(c.result)) << "of " << c.x << ": " << f(c.x) << ", not " << c.result;
  }
}

TEST(MathEdges, Exponential) {
  expect_bits(exp_near, {{0.0f, 1.0f},
                         {-0.0f, 1.0f},
                         {kTiny, 1.0f},
                         {-kTiny, 1.0f},
                         {0x1.fffffep-25f, 1.0f},
                         {0x1p-24f, 1.0f + FLT_EPSILON},
                         {1.0f, 0x1.5bf0a8p+1f},
                         // The last argument below overflow, and the first above.
                         {0x1.62e42ep+6f, 0x1.ffff08p+127f},
                         {0x1.62e430p+6f, kInf},
                         {90.0f, kInf},
                         {FLT_MAX, kInf},
                         {kInf, kInf},
                         // Subnormal results down to the last; half of that and less is zero.
                         {-88.0f, 0x1.07b71p-127f},
                         {-0x1.9d1d9ep+6f, kTiny},
                         {-0x1.9fe368p+6f, kTiny},
                         {-0x1.9fe36ap+6f, 0.0f},
                         {-110.0f, 0.0f},
                         {-FLT_MAX, 0.0f},
                         {-kInf, 0.0f}});
}

TEST(MathEdges, Logarithm) {
  expect_bits(log_near, {{0.0f, -kInf},
                         {-0.0f, -kInf},
                         {1.0f, 0.0f},
                         {kInf, kInf},
                         {2.0f, 0x1.62e43p-1f},
                         {0.5f, -0x1.62e43p-1f},
                         {kTiny, -0x1.9d1dap+6f},
                         {0x1p-126f, -0x1.5d58ap+6f},
                         {FLT_MAX, 0x1.62e43p+6f},
                         {1.0f + FLT_EPSILON, 0x1.fffffep-24f}});
  for (const float x : {-kTiny, -1.0f, -FLT_MAX, -kInf}) EXPECT_EQ(bits_of(log_near(x)), kNanBits) << x;
}

TEST(MathEdges, HyperbolicTangentAndErrorFunctionAreOddAndEndAtOne) {
  for (const auto f : {tanh_near, erf_near}) {
    expect_bits(f, {{0.0f, 0.0f},
                    {-0.0f, -0.0f},
                    {10.0f, 1.0f},
                    {-10.0f, -1.0f},
                    {FLT_MAX, 1.0f},
                    {-FLT_MAX, -1.0f},
                    {kInf, 1.0f},
                    {-kInf, -1.0f}});
    for (size_t i = 0; i < kSweepCount; i += 97) {
      const float x = sweep_argument(i);
      if (std::isnan(x)) continue;
      ASSERT_EQ(bits_of(f(-x)), bits_of(-f(x))) << x;
      ASSERT_LE(std::fabs(f(x)), 1.0f) << x;
    }
  }
  // Small arguments: tanh(x) is x, erf(x) is 2 x / sqrt(pi), in subnormals too.
  expect_bits(tanh_near,
              {{kTiny, kTiny}, {-3 * kTiny, -3 * kTiny}, {0x1p-126f, 0x1p-126f}, {0x1.8p-14f, 0x1.8p-14f}});
  expect_bits(erf_near, {{kTiny, kTiny}, {-100 * kTiny, -113 * kTiny}, {0x1p-126f, 0x1.20dd76p-126f}});
  // The first arguments whose results are 1; erf has some thirty left and right of that within its
  // bound.
  EXPECT_EQ(tanh_near(0x1.205968p+3f), 1.0f);
  EXPECT_EQ(tanh_near(0x1.205966p+3f), 1.0f - FLT_EPSILON / 2);
  EXPECT_EQ(erf_near(0x1.f5a8ap+1f), 1.0f);
  EXPECT_EQ(erf_near(0x1.f5a87p+1f), 1.0f - FLT_EPSILON / 2);
}

TEST(MathEdges, Sigmoid) {
  expect_bits(sigmoid_near, {{0.0f, 0.5f},
                             {-0.0f, 0.5f},
                             {kTiny, 0.5f},
                             {17.5f, 1.0f},
                             {FLT_MAX, 1.0f},
                             {kInf, 1.0f},
                             {-88.0f, 0x1.07b71p-127f},
                             {-0x1.9fe368p+6f, kTiny},
                             {-0x1.9fe36ap+6f, 0.0f},
                             {-110.0f, 0.0f},
                             {-FLT_MAX, 0.0f},
                             {-kInf, 0.0f}});
}

TEST(MathEdges, Softplus) {
  expect_bits(log1p_exp, {{0.0f, 0x1.62e43p-1f},
                          {-0.0f, 0x1.62e43p-1f},
                          {20.0f, 20.0f},
                          {FLT_MAX, FLT_MAX},
                          {kInf, kInf},
                          {-20.0f, exp_near(-20.0f)},
                          {-88.0f, 0x1.07b71p-127f},
                          {-0x1.9fe368p+6f, kTiny},
                          {-0x1.9fe36ap+6f, 0.0f},
                          {-FLT_MAX, 0.0f},
                          {-kInf, 0.0f}});
}

TEST(MathEdges, SettleNanChangesNothingElse) {
  for (size_t i = 0; i < kSweepCount; ++i) {
    const float x = sweep_argument(i);
    ASSERT_EQ(bits_of(settle_nan(x)), std::isnan(x) ? kNanBits : bits_of(x));
  }
  EXPECT_EQ(bits_of(settle_nan(kInf)), bits_of(kInf));
  EXPECT_EQ(bits_of(settle_nan(-kInf)), bits_of(-kInf));
}

// A loop the compiler may vectorise gives the bits of single calls, and both give those recorded
// here: the same on every machine and compiler that keeps IEEE's operations apart.
template <float (*kFunction)(float)>
uint64_t checksum_of_loop(const char* name) {
  std::vector<float> x(kSweepCount), y(kSweepCount);
  for (size_t i = 0; i < kSweepCount; ++i) x[i] = sweep_argument(i);
  for (size_t i = 0; i < kSweepCount; ++i) y[i] = kFunction(x[i]);
  float (*volatile one)(float) = kFunction;
  uint64_t sum = 0xCBF29CE484222325u;
  for (size_t i = 0; i < kSweepCount; ++i) {
    const uint32_t bits = bits_of(one(x[i]));
    EXPECT_EQ(bits_of(y[i]), bits) << name << " of " << x[i];
    sum = (sum ^ bits) * 0x100000001B3u;
  }
  return sum;
}

TEST(MathBits, LoopsGiveTheRecordedBits) {
  EXPECT_EQ(checksum_of_loop<exp_near>("exp_near"), 0x1AF80DC979E4E3ABu);
  EXPECT_EQ(checksum_of_loop<log_near>("log_near"), 0x80F75321D24982E9u);
  EXPECT_EQ(checksum_of_loop<tanh_near>("tanh_near"), 0xD0D28D8163647A12u);
  EXPECT_EQ(checksum_of_loop<sigmoid_near>("sigmoid_near"), 0x2F361D59EF5C084Fu);
  EXPECT_EQ(checksum_of_loop<erf_near>("erf_near"), 0xCE56CC6930A95478u);
  EXPECT_EQ(checksum_of_loop<log1p_exp>("log1p_exp"), 0xBEDF0524F46F563Au);
}

// Usable where a constant is needed.
static_assert(exp_near(0.0f) == 1.0f && tanh_near(0.0f) == 0.0f && log_near(1.0f) == 0.0f);

}  // namespace
}  // namespace ulp
