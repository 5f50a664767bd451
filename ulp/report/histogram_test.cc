#include "ulp/report/histogram.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/temp.h"

namespace ulp {
namespace {

std::string line(uint64_t step, const std::string& tensor, size_t counts = 3) {
  std::string numbers = "1";
  for (size_t i = 1; i < counts; ++i) numbers += fmt::format(",{}", step + i);
  return fmt::format(R"J({{"step":{},"tensor":"{}","kind":"activation_grad","format":"fp(4,3,4)","of":"x",)J"
                     R"J("lowest":-24,"counts":[{}],"zero":5,"infinite":6,"nan":7}})J"
                     "\n",
                     step, tensor, numbers);
}
std::string shifted(uint64_t step, const std::string& tensor) {
  return fmt::format(
      R"J({{"step":{},"tensor":"{}","kind":"weight","mu":-3.5,"m":{},"alpha":"inf","beta":2}})J"
      "\n",
      step, tensor, step);
}

class HistogramFile : public ::testing::Test {
 protected:
  Histograms read(const std::string& text, const HistogramBudget& budget = {}, bool complete = true) {
    notes_.clear();
    put(folder_ / "histograms.jsonl", text);
    return read_histograms(folder_ / "histograms.jsonl", budget, complete, notes_);
  }

  TempFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(HistogramFile, BothKindsOfLines) {
  const Histograms made = read(line(1, "a") + shifted(1, "b") + line(9, "a") + shifted(9, "b"));
  EXPECT_TRUE(notes_.empty());
  ASSERT_EQ(made.histograms.size(), 2u);
  const HistogramRecord& first = made.histograms[0];
  EXPECT_EQ(first.tensor, "a");
  EXPECT_EQ(first.kind, Kind::activation_grad);
  EXPECT_EQ(first.format, "fp(4,3,4)");
  EXPECT_EQ(first.of, "x");
  EXPECT_EQ(first.step, 1u);
  EXPECT_EQ(first.lowest, -24);
  EXPECT_EQ(first.counts, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(first.zero, 5u);
  EXPECT_EQ(first.infinite, 6u);
  EXPECT_EQ(first.nan, 7u);
  EXPECT_EQ(made.histograms[1].step, 9u);
  ASSERT_EQ(made.shifted.size(), 1u);
  const ShiftedRecord& b = made.shifted[0];
  EXPECT_EQ(b.tensor, "b");
  EXPECT_EQ(b.kind, Kind::weight);
  EXPECT_EQ(b.step, (std::vector<uint64_t>{1, 9}));
  EXPECT_EQ(b.mu, (std::vector<double>{-3.5, -3.5}));
  EXPECT_EQ(b.m, (std::vector<double>{1, 9}));
  EXPECT_TRUE(std::isinf(b.alpha[0]));
  EXPECT_EQ(b.beta, (std::vector<double>{2, 2}));
}

TEST_F(HistogramFile, NoFileIsFine) {
  EXPECT_TRUE(read_histograms(folder_ / "none", {}, true, notes_).histograms.empty());
  EXPECT_TRUE(notes_.empty());
}

TEST_F(HistogramFile, DamagedLinesAreNotesAndTheRestIsRead) {
  const std::string torn = line(3, "a").substr(0, 30);
  const Histograms made = read(line(1, "a") + "{}\nno json\n" + line(0, "late") + line(2, "a") + torn);
  EXPECT_EQ(made.histograms.size(), 2u);
  ASSERT_EQ(notes_.size(), 4u);
  EXPECT_NE(notes_[0].find("line 2 of histograms.jsonl"), std::string::npos) << notes_[0];
  EXPECT_NE(notes_[1].find("line 3"), std::string::npos);
  EXPECT_NE(notes_[2].find("comes before"), std::string::npos);
  EXPECT_NE(notes_[3].find("line 6 of histograms.jsonl is torn"), std::string::npos);
  read(line(1, "a") + torn, {}, false);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(HistogramFile, ExponentsThatNoNumberHas) {
  for (const std::string lowest : {"-9223372036854775808", "9223372036854775807", "9223372036854775808",
                                   "18446744073709551615", "18446744073709551592", "-1048577", "1048577"}) {
    std::string text = line(1, "a");
    text.replace(text.find("-24"), 3, lowest);
    EXPECT_TRUE(read(text).histograms.empty()) << lowest;
    ASSERT_EQ(notes_.size(), 1u) << lowest;
    EXPECT_NE(notes_[0].find("has an exponent that no number has"), std::string::npos) << notes_[0];
  }
}

TEST_F(HistogramFile, StaysWithinItsBudgetAndKeepsTheLastStep) {
  std::string text;
  for (uint64_t step = 1; step <= 1000; ++step) {
    text += line(step, "a", 40) + line(step, "b", 40) + shifted(step, "c") + shifted(step, "d");
  }
  const HistogramBudget budget{.numbers = 2000, .points = 100, .columns = 24};
  const Histograms made = read(text, budget);
  std::set<uint64_t> steps;
  size_t numbers = 0;
  for (const HistogramRecord& one : made.histograms) {
    steps.insert(one.step);
    numbers += one.counts.size();
  }
  EXPECT_LE(numbers, budget.numbers);
  EXPECT_GE(numbers, budget.numbers / 4);
  EXPECT_EQ(made.histograms.size(), 2 * steps.size());
  EXPECT_EQ(*steps.begin(), 1u);
  EXPECT_EQ(*steps.rbegin(), 1000u);
  ASSERT_EQ(made.shifted.size(), 2u);
  EXPECT_LE(made.shifted[0].step.size(), budget.columns);
  EXPECT_GE(made.shifted[0].step.size(), budget.columns / 3);
  EXPECT_EQ(made.shifted[0].step.front(), 1u);
  EXPECT_EQ(made.shifted[0].step.back(), 1000u);
  EXPECT_EQ(made.shifted[0].step, made.shifted[1].step);
}

TEST_F(HistogramFile, OneStepThatIsTooMuchIsCut) {
  const Histograms made = read(line(1, "a", 90) + line(1, "b", 90) + line(1, "c", 90), {.numbers = 200});
  EXPECT_EQ(made.histograms.size(), 2u);
}

}  // namespace
}  // namespace ulp
