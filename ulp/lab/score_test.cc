#include "ulp/lab/score.h"

#include <gtest/gtest.h>

#include <limits>

#include "ulp/tasks/task.h"

namespace ulp {
namespace {

TEST(Score, AccuracyIsPercent) {
  const Score acc = score_of(Metric{"acc", true, true});
  EXPECT_EQ(acc, Score{});
  EXPECT_EQ(acc.word(), "accuracy");
  EXPECT_EQ(acc.title(), "acc %");
  EXPECT_EQ(acc.number(0.91234), "91.23");
  EXPECT_EQ(acc.text(0.91234), "91.23%");
}

TEST(Score, OtherMetricsArePlainNumbers) {
  const Score bits = score_of(Metric{"bpc", false});
  EXPECT_EQ(bits, (Score{"bpc", false}));
  EXPECT_EQ(bits.word(), "bpc");
  EXPECT_EQ(bits.title(), "bpc");
  EXPECT_EQ(bits.number(2.12344), "2.1234");
  EXPECT_EQ(bits.text(2.12344), "2.1234");
  EXPECT_EQ(bits.text(1.5e7), "1.5e+07");
  EXPECT_EQ(bits.text(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(bits.text(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Score, SharesArePercentWhateverTheirName) {
  const Score hits = score_of(Metric{"hr@10", true, true});
  EXPECT_EQ(hits.word(), "hr@10");
  EXPECT_EQ(hits.title(), "hr@10 %");
  EXPECT_EQ(hits.text(0.5), "50.00%");
  EXPECT_NE(hits, (Score{"hr@10", true}));
}

// Also of metrics beyond 1, and of those below 0.
TEST(Score, ACostIsLessWhereItIsBetter) {
  const Score acc, bleu{"bleu", true}, bits{"bpc", false};
  EXPECT_EQ(acc.cost(0.75), 0.25);
  EXPECT_EQ(bleu.cost(31.7), -31.7);
  EXPECT_EQ(bits.cost(2.5), 2.5);
  for (const Score& score : {acc, bleu, bits}) {
    for (const double value : {-3.0, 0.25, 31.7}) {
      EXPECT_DOUBLE_EQ(score.value(score.cost(value)), value) << score.name;
      EXPECT_EQ(score.cost(value + 1) < score.cost(value), score.higher_is_better) << score.name;
    }
    EXPECT_EQ(score.cost(std::numeric_limits<double>::quiet_NaN()), std::numeric_limits<double>::infinity());
  }
}

TEST(Score, ADropIsAboveZeroWhereItIsWorse) {
  EXPECT_DOUBLE_EQ(Score{}.drop(0.75, 0.5), 0.25);
  EXPECT_DOUBLE_EQ(Score{}.drop(0.5, 0.75), -0.25);
  const Score bits{"bpc", false};
  EXPECT_DOUBLE_EQ(bits.drop(2, 2.5), 0.5);
  EXPECT_DOUBLE_EQ(bits.drop(2.5, 2), -0.5);
}

}  // namespace
}  // namespace ulp
