#include "ulp/precision/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "ulp/base/error.h"

namespace ulp {
namespace {

TEST(LossScale, TextsReadBack) {
  for (const char* text : {"none", "auto", "1", "1024", "0.5", "dynamic", "dynamic:1024", "dynamic:1024:7",
                           "dynamic:65536:1", "constant:100", "back-off", "back-off:1024", "back-off:1024:7",
                           "back-off:65536:7:8", "exponential:1:100", "exponential:0.5:100:1.5"}) {
    EXPECT_EQ(loss_scale_text(parse_loss_scale(text)), text);
  }
  EXPECT_EQ(parse_loss_scale("dynamic:65536"), parse_loss_scale("dynamic"));
  EXPECT_EQ(parse_loss_scale("exponential:1:100:2"), parse_loss_scale("exponential:1:100"));
}

TEST(LossScale, RefusesOtherTexts) {
  for (const char* text : {"",
                           "0",
                           "-1",
                           "nan",
                           "inf",
                           "1e30",
                           "1x",
                           "Dynamic",
                           "dynamic:",
                           "dynamic:0",
                           "dynamic:8:",
                           "dynamic:8:0",
                           "dynamic:8:-1",
                           "dynamic:8:2:3",
                           "dynamical",
                           "auto:8",
                           "automatic",
                           "constant",
                           "constant:",
                           "constant:0",
                           "constant:1:2",
                           "back-off:8:2:16",
                           "back-off:8:2:0",
                           "back-off:8:2:4:1",
                           "exponential",
                           "exponential:1",
                           "exponential:1:0",
                           "exponential:1:8:2:2"}) {
    EXPECT_THROW(parse_loss_scale(text), Error) << text;
  }
}

TEST(LossScaler, NoneNeverSkips) {
  LossScaler scaler(parse_loss_scale("none"), 10);
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(scaler.accept(true));
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(scaler.stuck());
}

TEST(LossScaler, AConstantNeverSkips) {
  LossScaler scaler(parse_loss_scale("constant:100"), 10);
  EXPECT_FALSE(scaler.skips());
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(scaler.accept(i % 3 != 0));
  EXPECT_EQ(scaler.scale(), 100);
  EXPECT_FALSE(scaler.stuck());
}

TEST(LossScaler, AnExponentialGrowsBySteps) {
  LossScaler scaler(parse_loss_scale("exponential:0.5:3:4"), 10);
  EXPECT_FALSE(scaler.skips());
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(scaler.scale(), std::min(0.5 * std::pow(4, i / 3), LossScaler::kHighest)) << i;
    EXPECT_TRUE(scaler.accept(i % 2 == 0));
  }
}

TEST(LossScaler, BackOffCountsStepsAtItsLeast) {
  LossScaler scaler(parse_loss_scale("back-off:16:2:4"), 10);
  EXPECT_FALSE(scaler.accept(true));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_FALSE(scaler.accept(true));
  EXPECT_EQ(scaler.scale(), 4);
  for (uint64_t i = 0; i < 2 * LossScaler::kMaxSkips; ++i) {
    EXPECT_FALSE(scaler.skips());
    EXPECT_TRUE(scaler.accept(true));
    EXPECT_EQ(scaler.scale(), 4);
    EXPECT_FALSE(scaler.stuck());
  }
  EXPECT_TRUE(scaler.accept(false));
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_TRUE(scaler.accept(false));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_TRUE(scaler.skips());
}

TEST(LossScaler, AFactorThatStaysSkipsToo) {
  for (const char* text : {"128", "auto"}) {
    LossScaler scaler(parse_loss_scale(text), 2);
    EXPECT_EQ(scaler.measured(), std::string_view(text) == "auto");
    scaler.set(128);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(scaler.accept(i % 2 == 0), i % 2 == 1);
    EXPECT_EQ(scaler.scale(), 128);
    EXPECT_FALSE(scaler.stuck());
    for (uint64_t i = 0; i < LossScaler::kMaxSkips; ++i) scaler.accept(true);
    EXPECT_EQ(scaler.scale(), 128);
    EXPECT_TRUE(scaler.stuck());
  }
}

// Gradients whose largest magnitude is `amax` at scale 1, in a format that holds `most`; beyond it
// they saturate, and what is seen of them is only that they were beyond.
double found_scale(double amax, double most) {
  double scale = 65536;
  for (int trial = 0; trial < 16; ++trial) {
    const double next = next_trial_scale(scale, most / std::min(amax * scale, 1.5 * most));
    if (next == scale) return scale;
    scale = next;
  }
  ADD_FAILURE() << "no end for " << amax << " in " << most;
  return scale;
}

TEST(LossScale, TrialsEndAtTheLargestPowerOfTwoThatLeavesTheMargin) {
  for (const double most : {57344.0, 65504.0, 3.4e38, 480.0}) {
    for (double amax = 1e-12; amax < 1e12; amax *= 3.7) {
      const double scale = found_scale(amax, most);
      EXPECT_EQ(std::exp2(std::round(std::log2(scale))), scale);
      const bool fits = scale * amax * LossScaler::kMargin <= most;
      const bool twice_would = 2 * scale * amax * LossScaler::kMargin <= most;
      EXPECT_TRUE(fits || scale == LossScaler::kLowest) << amax << " in " << most << " by " << scale;
      EXPECT_TRUE(!twice_would || scale == LossScaler::kHighest) << amax << " in " << most << " by " << scale;
    }
  }
  EXPECT_EQ(next_trial_scale(1, std::numeric_limits<double>::infinity()), LossScaler::kHighest);
  EXPECT_LT(next_trial_scale(1, 0), 1);
  EXPECT_EQ(next_trial_scale(LossScaler::kLowest, 0), LossScaler::kLowest);
}

TEST(LossScaler, HalvesOnOverflowAndDoublesAfterGoodSteps) {
  LossScaler scaler(parse_loss_scale("dynamic:1024:3"), 100);
  EXPECT_FALSE(scaler.accept(true));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.accept(false));
  EXPECT_TRUE(scaler.accept(false));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_TRUE(scaler.accept(false));
  EXPECT_EQ(scaler.scale(), 1024);
  // An overflow starts the count anew.
  scaler.accept(false);
  scaler.accept(false);
  scaler.accept(true);
  scaler.accept(false);
  scaler.accept(false);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.accept(false);
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, AnEpochIsTheUsualGrowth) {
  LossScaler scaler(parse_loss_scale("dynamic"), 5);
  for (int i = 0; i < 4; ++i) scaler.accept(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.accept(false);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScaler, StaysWithinItsLimitsAndSaysWhenItIsStuck) {
  LossScaler down(parse_loss_scale("dynamic"), 5), up(parse_loss_scale("dynamic:16777216:1"), 5);
  for (uint64_t i = 0; i < LossScaler::kMaxSkips; ++i) {
    EXPECT_FALSE(down.stuck());
    down.accept(true);
    up.accept(false);
  }
  EXPECT_TRUE(down.stuck());
  EXPECT_EQ(down.scale(), LossScaler::kLowest);
  EXPECT_EQ(up.scale(), LossScaler::kHighest);
  EXPECT_TRUE(down.accept(false));
  EXPECT_FALSE(down.stuck());
}

TEST(LossScaler, GoesOnFromItsState) {
  for (const char* text : {"dynamic:1024:4", "back-off:1024:4:256", "exponential:1:3", "constant:8"}) {
    SCOPED_TRACE(text);
    const LossScale config = parse_loss_scale(text);
    LossScaler whole(config, 10), first(config, 10), second(config, 10);
    for (int i = 0; i < 40; ++i) {
      const bool overflowed = i % 7 == 3;
      whole.accept(overflowed);
      if (i < 17) {
        first.accept(overflowed);
      } else {
        if (i == 17) second.restore(first.state());
        second.accept(overflowed);
      }
    }
    EXPECT_EQ(whole.state(), second.state());
  }
}

}  // namespace
}  // namespace ulp
