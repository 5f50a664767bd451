#include "ulp/runtime/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ulp {
namespace {

struct Moments {
  double mean = 0, deviation = 0, fourth = 0, low = 0, high = 0;
};

Moments moments(const Init& init, uint64_t seed, uint32_t tensor, size_t n) {
  std::vector<float> values(n);
  fill_initial(init, seed, tensor, values);
  Moments m;
  for (const double x : values) {
    m.mean += x / static_cast<double>(n);
    m.low = std::min(m.low, x);
    m.high = std::max(m.high, x);
  }
  for (const double x : values) m.deviation += (x - m.mean) * (x - m.mean) / static_cast<double>(n);
  for (const double x : values) m.fourth += std::pow(x - m.mean, 4) / static_cast<double>(n);
  m.fourth /= m.deviation * m.deviation;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

constexpr size_t kMany = 1 << 20;

TEST(Init, NormalNumbersAreNormal) {
  const Moments m = moments(Init::normal(0.5f), 1, 2, kMany);
  // Five standard errors of each.
  EXPECT_NEAR(m.mean, 0, 5 * 0.5 / std::sqrt(kMany));
  EXPECT_NEAR(m.deviation, 0.5, 5 * 0.5 / std::sqrt(2.0 * kMany));
  EXPECT_NEAR(m.fourth, 3, 5 * std::sqrt(24.0 / kMany));
  EXPECT_GT(m.high, 0.5 * 4.2);
  EXPECT_LT(m.low, -0.5 * 4.2);
}

TEST(Init, UniformNumbersFillTheirInterval) {
  const Moments m = moments(Init::uniform(0.25f), 1, 2, kMany);
  EXPECT_NEAR(m.mean, 0, 5 * 0.25 / std::sqrt(3.0 * kMany));
  EXPECT_NEAR(m.deviation, 0.25 / std::sqrt(3.0), 1e-3);
  EXPECT_LT(m.high, 0.25);
  EXPECT_GT(m.low, -0.25);
  EXPECT_GT(m.high, 0.2499);
  EXPECT_LT(m.low, -0.2499);
}

TEST(Init, FollowsFromSeedTensorAndElementAlone) {
  std::vector<float> whole(100), part(10), other(100), seeded(100);
  fill_initial(Init::normal(1), 7, 3, whole);
  fill_initial(Init::normal(1), 7, 3, part);
  fill_initial(Init::normal(1), 7, 4, other);
  fill_initial(Init::normal(1), 8, 3, seeded);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  EXPECT_NE(whole, other);
  EXPECT_NE(whole, seeded);
}

TEST(Init, ConstantsAreThemselves) {
  std::vector<float> values(5);
  fill_initial(Init::constant(1.5f), 7, 3, values);
  EXPECT_EQ(values, std::vector<float>(5, 1.5f));
}

}  // namespace
}  // namespace ulp
