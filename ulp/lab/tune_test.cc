#include "ulp/lab/tune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/run/setup.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

TEST(Tune, ADistinctRatioForEachNumberOfGroups) {
  EXPECT_EQ(distinct_ratios(std::vector<size_t>{1, 3, 6}), (std::vector<double>{0, 0.6, 0.9, 1}));
  // Two of one size are two steps, an empty group is none; a digit more where one does not tell
  // them apart.
  EXPECT_EQ(distinct_ratios(std::vector<size_t>{50, 0, 50}), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(distinct_ratios(std::vector<size_t>{900, 55, 45}), (std::vector<double>{0, 0.9, 0.95, 1}));
  EXPECT_EQ(distinct_ratios(std::vector<size_t>{2, 1}), (std::vector<double>{0, 0.6, 1}));
}

TEST(Tune, RatiosTakeAsManyGroupsAsTheyAreFor) {
  RunConfig config;
  config.model = "squeezenet";
  config.width = 0.25;
  config.batch = 8;
  const RunInput input = run_input(config);
  EXPECT_EQ(input.size.train, 60000u);
  const std::vector<double> ratios = distinct_ratios(config, input);
  size_t groups = 0;
  for (const double ratio : ratios) {
    const std::unique_ptr<LearningTask> task = sketch_task(task_options(config), input.id, input.size);
    const Engine engine(engine_options(with_ratio(config, ratio), *task));
    EXPECT_EQ(engine.assignment().low_groups.size(), groups) << ratio;
    ++groups;
  }
  EXPECT_GT(groups, 20u);
}

TEST(Tune, RatiosAreNumbersFromZeroToOne) {
  EXPECT_EQ(parse_ratios("1,0.5,0"), (std::vector<double>{0, 0.5, 1}));
  for (const char* bad : {"", "x", "0.5,", ",1", "1.5", "-0.1", "nan", "0.5 ", "0,0.5,0.50"}) {
    EXPECT_THROW(parse_ratios(bad), Error) << bad;
  }
}

TEST(Tune, TheBaselineHasNoFormats) {
  RunConfig config;
  config.policy = "size:0.5";
  config.candidates = "fp8";
  config.formats = "fc.out=bf16";
  config.promote = "0.1";
  config.lr = 0.5;
  const RunConfig fp32 = as_fp32(config);
  check(fp32);
  RunConfig expected;
  expected.lr = 0.5;
  EXPECT_EQ(fp32, expected);
}

TEST(Tune, TheLargestSavingWithinTheDropIsChosen) {
  const auto pilot = [](double ratio, uint64_t bits, double accuracy, bool finished = true) {
    TunePilot made;
    made.ratio = ratio;
    made.plan.aggregate_bits = bits;
    made.finished = finished;
    made.best = accuracy;
    return made;
  };
  const std::vector<TunePilot> pilots = {pilot(0, 16, 0.9), pilot(0.5, 12, 0.89), pilot(0.75, 10, 0.88),
                                         pilot(0.9, 10, 0.88), pilot(1, 8, 0.95, false)};
  const Score acc;
  EXPECT_EQ(choose_by_drop(pilots, acc, 0.9, 0.0), 0u);
  EXPECT_EQ(choose_by_drop(pilots, acc, 0.9, 0.01), 1u);  // 0.9 - 0.89 is above 0.01
  // Of equals the larger; not the one that failed.
  EXPECT_EQ(choose_by_drop(pilots, acc, 0.9, 0.02), 3u);
  EXPECT_EQ(choose_by_drop(pilots, acc, 0.5, 0.0), 3u);
  EXPECT_EQ(choose_by_drop(pilots, acc, 0.95, 0.01), std::nullopt);
  // What diverged may have been good before it did.
  std::vector<TunePilot> some_diverged = pilots;
  some_diverged[3].diverged = true;
  EXPECT_EQ(choose_by_drop(some_diverged, acc, 0.9, 0.02), 2u);
  for (TunePilot& one : some_diverged) one.diverged = true;
  EXPECT_EQ(choose_by_drop(some_diverged, acc, 0.9, 0.5), std::nullopt);
}

TEST(Tune, WhereLessIsBetterADropIsMore) {
  const auto pilot = [](double ratio, uint64_t bits, double best) {
    TunePilot made;
    made.ratio = ratio;
    made.plan.aggregate_bits = bits;
    made.finished = true;
    made.best = best;
    return made;
  };
  const Score bits{"bpc", false};
  const std::vector<TunePilot> pilots = {pilot(0, 16, 2), pilot(0.5, 12, 2.5), pilot(1, 8, 4),
                                         pilot(0.9, 4, std::numeric_limits<double>::quiet_NaN())};
  EXPECT_EQ(choose_by_drop(pilots, bits, 2, 0), 0u);
  EXPECT_EQ(choose_by_drop(pilots, bits, 2, 0.5), 1u);
  EXPECT_EQ(choose_by_drop(pilots, bits, 2, 3), 2u);
  EXPECT_EQ(choose_by_drop(pilots, bits, 4.5, 0), 2u);  // better than fp32 is no drop
  EXPECT_EQ(choose_by_drop(pilots, bits, 1, 0.5), std::nullopt);
}

TEST(Tune, InputsSayWhatTheTaskIsJudgedBy) {
  const RunInput images = run_input(RunConfig{});
  EXPECT_EQ(images.score, Score{});
  EXPECT_TRUE(images.takes_subset);

  const std::string path = std::filesystem::temp_directory_path() / fmt::format("ulp-tune-{}.txt", getpid());
  std::ofstream(path) << "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
  RunConfig config;
  config.task = "characters";
  config.model = "charmlp";
  config.data = path;
  config.batch = 4;
  const RunInput text = run_input(config);
  std::filesystem::remove(path);
  EXPECT_EQ(text.score, (Score{"bpc", false}));
  EXPECT_FALSE(text.takes_subset);
  EXPECT_EQ(text.size.train, 9u);
}

}  // namespace
}  // namespace ulp
