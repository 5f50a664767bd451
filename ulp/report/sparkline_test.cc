#include "ulp/report/sparkline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ulp {
namespace {

const double kInf = std::numeric_limits<double>::infinity(), kNan = std::nan("");

TEST(Sparkline, HeightsFollowValues) {
  const std::vector<double> rising = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(sparkline(rising, 8, false), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(rising, 8, true), "_.-:=+*#");
  EXPECT_EQ(sparkline(std::vector<double>{7, 0, 3.5}, 8, false), "█▁▅");
  // Only differences count.
  EXPECT_EQ(sparkline(std::vector<double>{-1e9 + 7, -1e9, -1e9 + 3.5}, 8, true), "#_=");
}

TEST(Sparkline, PartsAreMeans) {
  // (0, 8), (2, 2), (7, 9): 4, 2 and 8.
  EXPECT_EQ(sparkline(std::vector<double>{0, 8, 2, 2, 7, 9}, 3, true), "-_#");
  // Parts differ by one in length: (6), (0, 0), (3, 3).
  EXPECT_EQ(sparkline(std::vector<double>{6, 0, 0, 3, 3}, 3, true), "#_=");
  const std::vector<double> many(100000, 1);
  EXPECT_EQ(sparkline(many, 5, true), ":::::");
}

TEST(Sparkline, WhatIsNotFiniteShows) {
  EXPECT_EQ(sparkline(std::vector<double>{1, kNan, 2, kInf, 1}, 5, true), "_x#x_");
  // One of a part is enough.
  EXPECT_EQ(sparkline(std::vector<double>{0, 0, 1, -kInf, 7, 7}, 3, false), "▁x█");
  EXPECT_EQ(sparkline(std::vector<double>{kNan, kNan}, 5, false), "xx");
}

TEST(Sparkline, Edges) {
  EXPECT_EQ(sparkline({}, 8, false), "");
  EXPECT_EQ(sparkline(std::vector<double>{1, 2}, 0, false), "");
  EXPECT_EQ(sparkline(std::vector<double>{3}, 8, false), "▄");
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sparkline(std::vector<double>{-most, 0, most}, 3, true), "_=#");
  EXPECT_EQ(sparkline(std::vector<double>{most, most, 0, 0}, 2, true), "#_");
}

TEST(TextColumns, CountsLetters) {
  EXPECT_EQ(text_columns(""), 0u);
  EXPECT_EQ(text_columns("abc"), 3u);
  EXPECT_EQ(text_columns("▁é模x"), 4u);
}

}  // namespace
}  // namespace ulp
