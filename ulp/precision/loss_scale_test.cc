#include "ulp/precision/loss_scale.h"

#include <gtest/gtest.h>

#include "ulp/base/error.h"

namespace ulp {
namespace {

TEST(LossScale, TextsReadBack) {
  for (const char* text :
       {"none", "1", "1024", "0.5", "dynamic", "dynamic:1024", "dynamic:1024:7", "dynamic:65536:1"}) {
    EXPECT_EQ(loss_scale_text(parse_loss_scale(text)), text);
  }
  EXPECT_EQ(parse_loss_scale("dynamic:65536"), parse_loss_scale("dynamic"));
}

TEST(LossScale, RefusesOtherTexts) {
  for (const char* text :
       {"", "0", "-1", "nan", "inf", "1e30", "1x", "Dynamic", "dynamic:", "dynamic:0",
        "dynamic:8:", "dynamic:8:0", "dynamic:8:-1", "dynamic:8:2:3", "dynamical", "auto"}) {
    EXPECT_THROW(parse_loss_scale(text), Error) << text;
  }
}

TEST(LossScaler, NoneAndFixedNeverSkip) {
  for (const char* text : {"none", "128"}) {
    LossScaler scaler(parse_loss_scale(text), 10);
    const double before = scaler.scale();
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(scaler.accept(i % 2 == 0));
    EXPECT_EQ(scaler.scale(), before);
    EXPECT_FALSE(scaler.stuck());
  }
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
  const LossScale config = parse_loss_scale("dynamic:1024:4");
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

}  // namespace
}  // namespace ulp
