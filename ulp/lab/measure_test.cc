// The whole of it on a model with few groups.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ulp/base/error.h"
#include "ulp/lab/pareto_report.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

class Lab : public testing::Test {
 protected:
  Lab() {
    std::filesystem::create_directories(folder_);
    options_.config.model = "mlp";
    options_.config.width = 0.25;
    options_.config.data = "synthetic";
    options_.config.image_shape = "1x8x8";
    options_.config.subset = 32;
    options_.config.batch = 16;
    options_.config.epochs = 0;
    options_.config.steps = 4;
    options_.config.policy = "size:0";
    options_.measure = Measure::gradient;
    options_.seeds = 2;
    options_.pilot = {.batches = 1, .warmup = 1};
    options_.folder = folder_;
    task_ = make_task(task_options(options_.config));
  }
  ~Lab() override { std::filesystem::remove_all(folder_); }

  ParetoResult measure(size_t stop_after = 1000000) {
    std::atomic<bool> stop = false;
    return measure_choices(
        options_, *task_, [&](size_t, size_t, size_t here) { stop = (measured_ = here) >= stop_after; },
        stop);
  }

  std::string first_line() const {
    std::ifstream file(folder_ + "/measured.csv");
    std::string line;
    std::getline(file, line);
    return line;
  }

  const std::string folder_ = std::filesystem::temp_directory_path() / fmt::format("ulp-lab-{}", getpid());
  ParetoOptions options_;
  std::unique_ptr<LearningTask> task_;
  size_t measured_ = 0;
};

TEST_F(Lab, EveryChoiceIsMeasuredAndPlanned) {
  const ParetoResult result = measure();
  ASSERT_TRUE(result.complete);
  const size_t groups = result.elements.size();
  ASSERT_EQ(result.choices.size(), size_t{1} << groups);
  EXPECT_EQ(measured_, 2 * result.choices.size());
  EXPECT_EQ(result.choices[0].costs, (std::vector<double>{0, 0}));
  EXPECT_EQ(result.choices[0].low_ratio, 0);
  for (size_t i = 1; i < result.choices.size(); ++i) {
    EXPECT_EQ(result.choices[i].low, i);
    EXPECT_EQ(result.choices[i].costs.size(), 2u);
    EXPECT_GT(result.choices[i].cost(), 0);
    EXPECT_LT(result.choices[i].aggregate_bits, result.choices[0].aggregate_bits);
    EXPECT_GT(result.choices[i].peak_bytes, 0u);
  }

  const std::vector<Path> paths = policy_paths(options_, *task_);
  ASSERT_EQ(paths.size(), 9u);
  for (const Path& path : paths) {
    if (path.name == "peak") continue;
    EXPECT_EQ(path.low.size(), groups - 1) << path.name;
  }
  // Each of the peak's takes less than the one before.
  size_t before = result.choices[0].peak_bytes;
  for (const uint32_t low : paths.back().low) {
    EXPECT_LT(result.choices[low].peak_bytes, before);
    before = result.choices[low].peak_bytes;
  }
  const std::string csv = choices_csv(result, paths);
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), result.choices.size() + 1);
  const std::string svg = choices_svg(result, paths);
  EXPECT_NE(svg.find(">sensitivity<"), svg.npos);
  const std::string summary = summary_text(result, paths);
  EXPECT_NE(summary.find("best possible"), summary.npos);
  EXPECT_EQ(summary.find("first fits") != summary.npos, !paths.back().low.empty());
  EXPECT_EQ(summary.find("nan"), summary.npos) << summary;
}

TEST(Measured, LinesAreReadWholeOrRefused) {
  const auto read = [](const std::string& lines) { return parse_measured("# a\n" + lines, "# a", 4, "f"); };
  EXPECT_EQ(parse_measured("", "# a", 4, "f").whole, 0u);
  EXPECT_EQ(parse_measured("# ", "# a", 4, "f").whole, 0u);
  EXPECT_EQ(parse_measured("# a", "# a", 4, "f").whole, 0u);
  EXPECT_THROW(parse_measured("# b\n", "# a", 4, "f"), Error);
  EXPECT_THROW(parse_measured("# ab", "# a", 4, "f"), Error);
  EXPECT_THROW(parse_measured("\n", "# a", 4, "f"), Error);
  const Measured some = read("7,3,0.5\n18446744073709551615,0,inf\n8,1,0.");
  EXPECT_EQ(some.whole, std::string("# a\n7,3,0.5\n18446744073709551615,0,inf\n").size());
  ASSERT_EQ(some.costs.size(), 2u);
  EXPECT_EQ(some.costs.at({7, 3}), 0.5);
  for (const char* line : {"", "x", ",1,0.5", "7,,0.5", "7,1,", "7,4,0.5", "7,1,0.5,", "7,1,x", "-7,1,0.5",
                           "18446744073709551616,1,0.5", "7,4294967296,0.5", "7,1,1e999"})
    EXPECT_THROW(read(std::string(line) + "\n"), Error) << line;
}

TEST_F(Lab, WhatWasDoneIsNotDoneAgain) {
  const ParetoResult whole = measure();
  std::filesystem::remove(folder_ + "/measured.csv");
  EXPECT_FALSE(measure(5).complete);
  EXPECT_EQ(measured_, 5u);
  // Cut off within a line.
  const std::string path = folder_ + "/measured.csv";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  const ParetoResult again = measure();
  EXPECT_TRUE(again.complete);
  EXPECT_EQ(measured_, 2 * whole.choices.size() - 4);
  EXPECT_EQ(again.choices, whole.choices);
  measured_ = 0;
  EXPECT_EQ(measure().choices, whole.choices);
  EXPECT_EQ(measured_, 0u);
  // A line that is whole is never dropped in silence; a first one that was cut off is none.
  const auto size = std::filesystem::file_size(path);
  std::ofstream(path, std::ios::app) << "x\n";
  EXPECT_THROW(measure(), Error);
  EXPECT_EQ(std::filesystem::file_size(path), size + 2);
  std::filesystem::resize_file(path, 5);
  EXPECT_EQ(measure().choices, whole.choices);
  EXPECT_EQ(measured_, 2 * whole.choices.size());
  // More seeds go on from there; another configuration does not.
  options_.seeds = 3;
  measure();
  EXPECT_EQ(measured_, whole.choices.size());
  options_.config.batch = 8;
  EXPECT_THROW(measure(), Error);
}

TEST_F(Lab, AccuracyIsThatOfTraining) {
  options_.measure = Measure::score;
  options_.seeds = 1;
  const ParetoResult result = measure();
  ASSERT_TRUE(result.complete);
  for (const Choice& choice : result.choices) {
    EXPECT_GE(choice.cost(), 0);
    EXPECT_LE(choice.cost(), 1);
  }
  EXPECT_TRUE(first_line().starts_with("# accuracy; model mlp; ")) << first_line();
  const std::vector<Path> paths = {path_of("size", std::vector<int>{0, 1})};
  EXPECT_NE(choices_csv(result, paths).find(",accuracy_0,accuracy_mean,"), std::string::npos);
  EXPECT_NE(choices_svg(result, paths).find("test accuracy, %"), std::string::npos);
  const std::string summary = summary_text(result, paths);
  for (const char* words :
       {"the front of aggregate and accuracy", ", in points of accuracy", "with at least this accuracy", "%"})
    EXPECT_NE(summary.find(words), summary.npos) << words << "\n" << summary;
}

TEST_F(Lab, AMetricThatIsBetterTheLowerIsItsOwnCost) {
  const std::string text = folder_ + "/text.txt";
  std::ofstream lines(text);
  for (int i = 0; i < 40; ++i) lines << "line " << i << " of a text\n";
  lines.close();
  options_.config.task = "characters";
  options_.config.model = "charmlp";
  options_.config.data = text;
  options_.config.image_shape = "";
  options_.config.subset = 0;
  options_.config.length = 8;
  options_.measure = Measure::score;
  options_.seeds = 1;
  task_ = make_task(task_options(options_.config));
  const ParetoResult result = measure();
  ASSERT_TRUE(result.complete);
  EXPECT_EQ(result.score, (Score{"bpc", false}));
  // Of some 20 letters, after hardly any training.
  for (const Choice& choice : result.choices) {
    EXPECT_GT(choice.cost(), 1);
    EXPECT_LT(choice.cost(), 6);
  }
  EXPECT_TRUE(first_line().starts_with("# bpc; ")) << first_line();
  const std::vector<Path> paths = policy_paths(options_, *task_);
  const std::string csv = choices_csv(result, paths);
  EXPECT_NE(csv.find(",bpc_0,bpc_mean,"), csv.npos) << csv;
  EXPECT_NE(csv.find(fmt::format(",{:.6g},{:.6g},", result.choices[0].cost(), result.choices[0].cost())),
            csv.npos)
      << csv;
  const std::string svg = choices_svg(result, paths);
  EXPECT_NE(svg.find(">test bpc<"), svg.npos);
  const std::string summary = summary_text(result, paths);
  for (const std::string& words :
       {std::string("the front of aggregate and bpc"), std::string(", in bpc"),
        std::string("with at most this bpc"), fmt::format("no group low {:.4f},", result.choices[0].cost())})
    EXPECT_NE(summary.find(words), summary.npos) << words << "\n" << summary;
  EXPECT_EQ(summary.find("accuracy"), summary.npos) << summary;
  EXPECT_EQ(summary.find('%'), summary.npos) << summary;
}

TEST_F(Lab, TooManyGroupsAreRefused) {
  options_.config.model = "resnet20";
  options_.config.image_shape = "3x32x32";
  task_ = make_task(task_options(options_.config));
  try {
    measure();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("choices are too many"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ulp
