#include "ulp/report/curve.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace ulp {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Curve made_of(const std::vector<StepPoint>& points, size_t most) {
  CurveMaker maker(most);
  for (const StepPoint& point : points) EXPECT_TRUE(maker.add(point));
  return maker.take();
}

// The definition: all points of a bucket side by side.
Curve plainly(const std::vector<StepPoint>& points, uint64_t stride) {
  std::map<uint64_t, std::vector<StepPoint>> buckets;
  for (const StepPoint& point : points) buckets[(point.step - 1) / stride].push_back(point);
  Curve curve;
  curve.stride = stride;
  for (const auto& [number, inside] : buckets) {
    std::vector<double> finite;
    double odd = 0, cancelled = 0;
    uint64_t skipped = 0;
    for (const StepPoint& point : inside) {
      if (std::isfinite(point.loss)) finite.push_back(point.loss);
      if (!std::isfinite(point.loss)) odd += point.loss;
      cancelled += point.cancelled / static_cast<double>(inside.size());
      skipped += point.skipped ? 1 : 0;
    }
    double sum = 0;
    for (const double loss : finite) sum += loss;
    curve.step.push_back(inside.back().step);
    curve.loss.push_back(finite.empty() ? odd : sum / static_cast<double>(finite.size()));
    curve.low.push_back(finite.empty() ? odd : *std::min_element(finite.begin(), finite.end()));
    curve.high.push_back(finite.empty() ? odd : *std::max_element(finite.begin(), finite.end()));
    curve.lr.push_back(inside.back().lr);
    curve.scale.push_back(inside.back().scale);
    curve.cancelled.push_back(cancelled);
    curve.skipped.push_back(skipped);
  }
  return curve;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || a == b || std::abs(a - b) <= 1e-12 * std::abs(b);
}

void expect_same(const std::vector<double>& a, const std::vector<double>& b) {
  RC_ASSERT(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) RC_ASSERT(same(a[i], b[i]));
}

std::vector<StepPoint> random_points() {
  const auto count = *rc::gen::inRange<size_t>(1, 400);
  std::vector<StepPoint> points(count);
  uint64_t step = 0;
  for (StepPoint& point : points) {
    step += *rc::gen::weightedOneOf<uint64_t>(
        {{9, rc::gen::just<uint64_t>(1)}, {1, rc::gen::inRange<uint64_t>(1, 50)}});
    point.step = step;
    const int what = *rc::gen::inRange(0, 12);
    const double loss = *rc::gen::inRange(-1000, 1000) / 8.0;
    point.loss = what == 0 ? kNan : what == 1 ? kInf : what == 2 ? -kInf : loss;
    point.lr = static_cast<double>(step) / 1024;
    point.scale = *rc::gen::element(1.0, 2.0, 4.0);
    point.skipped = what == 3;
    point.cancelled = what < 6 ? 0 : what / 16.0;
  }
  return points;
}

TEST(Curve, BucketsAreThoseOfAllPointsSideBySide) {
  rc::check([] {
    const std::vector<StepPoint> points = random_points();
    const auto most = *rc::gen::inRange<size_t>(2, 40) * 2;
    const Curve curve = made_of(points, most);
    RC_ASSERT(curve.step.size() <= most);
    // The least stride that is enough.
    if (curve.stride > 1) RC_ASSERT(plainly(points, curve.stride / 2).step.size() > most);
    Curve expected = plainly(points, curve.stride);
    RC_ASSERT(curve.step == expected.step);
    expect_same(curve.loss, expected.loss);
    expect_same(curve.low, expected.low);
    expect_same(curve.high, expected.high);
    expect_same(curve.lr, expected.lr);
    expect_same(curve.scale, expected.scale);
    const auto none = [](const auto& all) {
      return std::all_of(all.begin(), all.end(), [](auto x) { return x == 0; });
    };
    if (none(expected.cancelled)) expected.cancelled.clear();
    if (none(expected.skipped)) expected.skipped.clear();
    expect_same(curve.cancelled, expected.cancelled);
    RC_ASSERT(curve.skipped == expected.skipped);
  });
}

TEST(Curve, WhatIsNotFiniteCountsOnlyWhereABucketHasNothingElse) {
  const Curve curve = made_of({{1, kNan}, {2, 3}, {3, kInf}, {4, kInf}, {5, 1}}, 4);
  EXPECT_EQ(curve.stride, 2u);
  EXPECT_EQ(curve.step, (std::vector<uint64_t>{2, 4, 5}));
  EXPECT_EQ(curve.loss, (std::vector<double>{3, kInf, 1}));
  EXPECT_EQ(curve.low, curve.loss);
  EXPECT_EQ(curve.high, curve.loss);
}

TEST(Curve, AStepThatDoesNotComeAfterTheLastIsLeftOut) {
  CurveMaker maker(100);
  EXPECT_TRUE(maker.add({5, 1}));
  EXPECT_FALSE(maker.add({5, 2}));
  EXPECT_FALSE(maker.add({4, 2}));
  EXPECT_FALSE(maker.add({0, 2}));
  EXPECT_TRUE(maker.add({6, 3}));
  EXPECT_EQ(maker.take().loss, (std::vector<double>{1, 3}));
}

TEST(Curve, AGapAsLargeAsTheRun) {
  const Curve curve = made_of({{1, 1}, {2, 2}, {1'000'000'000'000, 3}}, 2);
  EXPECT_EQ(curve.step, (std::vector<uint64_t>{2, 1'000'000'000'000}));
  EXPECT_EQ(curve.loss, (std::vector<double>{1.5, 3}));
}

}  // namespace
}  // namespace ulp
