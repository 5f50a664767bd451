#include "ulp/lab/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ulp {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Chart, TicksAreRoundNumbersInside) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_FALSE(std::signbit(axis_ticks(-0.1, 1, 5).front()));
  EXPECT_EQ(axis_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const auto& [low, high] : {std::pair(0.0123, 0.0987), {-5e6, 3e7}, {99.0, 99.5}, {1e-9, 2e-9}}) {
    const auto ticks = axis_ticks(low, high, 6);
    EXPECT_GE(ticks.size(), 3u);
    EXPECT_LE(ticks.size(), 12u);
    for (const double tick : ticks) {
      EXPECT_GE(tick, low - 1e-9 * std::abs(low));
      EXPECT_LE(tick, high + 1e-9 * std::abs(high));
    }
  }
}

TEST(Chart, HasAxesSeriesAndOneLegendEntryForAName) {
  const Panel panel{"Title",
                    "x <MiB>",
                    "a & b",
                    {{"one", "#123456", {{1, 2}, {3, 4}}, true, 4},
                     {"two", "#654321", {{2, 3}}},
                     {"two", "#654321", {{2, 2}}}}};
  const std::string text = svg_chart(std::vector{panel, panel});
  EXPECT_TRUE(text.starts_with("<svg "));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  EXPECT_EQ(count(text, ">Title<"), 2u);
  EXPECT_EQ(count(text, ">x &lt;MiB><"), 2u);
  EXPECT_EQ(count(text, ">a &amp; b<"), 2u);
  EXPECT_EQ(count(text, ">one<"), 1u);
  EXPECT_EQ(count(text, ">two<"), 1u);
  EXPECT_EQ(count(text, "<text"), count(text, "</text>"));
  EXPECT_EQ(count(text, "nan"), 0u);
}

TEST(Chart, AreasEndAtZero) {
  const Panel panel{"", "", "", {{"area", "#123456", {{0, 5}, {1, 5}, {1, 6}, {2, 6}}, false, 0, true}}};
  const std::string text = svg_chart(std::vector{panel});
  EXPECT_EQ(count(text, "fill=\"#123456\""), 1u);
  EXPECT_EQ(count(text, "Z\""), 1u);
  EXPECT_EQ(count(text, "stroke=\"#123456\""), 1u);  // the legend's dot
  EXPECT_EQ(count(text, ">0<"), 2u);                 // on both axes
  // Stairs.
  EXPECT_EQ(count(text, "H"), 2u);
  EXPECT_EQ(count(text, "V"), 1u);
}

TEST(Chart, WhatHasNoPlaceIsLeftOut) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInfinity = std::numeric_limits<double>::infinity();
  const Panel log{
      "", "", "", {{"s", "red", {{1, 0}, {1, -1}, {2, 1e-3}, {3, 1e3}, {kNan, 1}, {1, kInfinity}}}}, true};
  const std::string text = svg_chart(std::vector{log});
  EXPECT_EQ(count(text, "h0"), 2u + 1);  // and the legend's
  EXPECT_EQ(count(text, "nan") + count(text, "inf"), 0u);
  EXPECT_EQ(count(text, ">0.01<"), 1u);
  // Nothing to show, or one point, is no reason to fail.
  EXPECT_FALSE(svg_chart({}).empty());
  EXPECT_EQ(count(svg_chart(std::vector{Panel{}}), "nan"), 0u);
  EXPECT_EQ(count(svg_chart(std::vector{Panel{"", "", "", {{"s", "red", {{5, 5}}}}}}), "nan"), 0u);
}

}  // namespace
}  // namespace ulp
