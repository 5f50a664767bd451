#include "ulp/lab/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/lab/table.h"

namespace ulp {
namespace {

std::string step(int number, const std::string& loss, bool skipped = false) {
  return R"({"event":"step","step":)" + std::to_string(number) + R"(,"loss":)" + loss +
         R"(,"lr":0.1,"scale":1.0,"skipped":)" + (skipped ? "true" : "false") + "}\n";
}

std::string epoch(int number, const std::string& loss, double accuracy, double fp32, double low, int peak) {
  std::ostringstream text;
  text << R"({"event":"epoch","epoch":)" << number << R"(,"train_loss":)" << loss
       << R"(,"train_acc":0.5,"test_loss":)" << loss << R"(,"test_acc":)" << accuracy
       << R"(,"test_acc_fp32":)" << fp32 << R"(,"low_ratio":)" << low << R"(,"peak_bytes":)" << peak
       << R"(,"seconds":1.5,"examples_per_second":10.0})"
       << "\n";
  return text.str();
}

const std::string kPromote =
    R"({"event":"promote","step":1,"tensor":"a.out","from":"e4m3","to":"bf16","overflow_ratio":0.5})"
    "\n";
const std::string kDone = R"({"event":"done","best_test_acc":0.7,"final_test_acc":0.6,"peak_bytes":900})"
                          "\n";

TEST(Results, AreWhatTheMetricsSay) {
  const std::string text = step(1, "2.5", true) + kPromote + kPromote + step(2, "2") +
                           epoch(1, "2.2", 0.5, 0.6, 0.9, 700) + step(3, "1.5") + step(4, "1.25", true) +
                           epoch(2, "1.5", 0.7, 0.65, 0.8, 800) + step(5, "1") +
                           epoch(3, "1.25", 0.7, 0.9, 0.7, 800) + kDone;
  const RunResult result = parse_result(text, "m");
  EXPECT_EQ(result.steps, 5u);
  EXPECT_EQ(result.epochs, 3u);
  EXPECT_TRUE(result.done);
  EXPECT_FALSE(result.diverged);
  EXPECT_EQ(result.best, 0.7);
  EXPECT_EQ(result.best_fp32, 0.65);  // of the first of two equal epochs
  EXPECT_EQ(result.train_loss, 1.25);
  EXPECT_NEAR(result.low_ratio, 0.8, 1e-12);
  EXPECT_EQ(result.promotions, 2u);
  EXPECT_EQ(result.skipped, 2u);
  EXPECT_EQ(result.peak_bytes, 900u);
  EXPECT_EQ(result.seconds, 4.5);
}

TEST(Results, NameTheMetric) {
  const auto bits = [](double value, const std::string& fp32) {
    return fmt::format(
        R"({{"event":"epoch","epoch":1,"train_loss":2,"test_loss":2,"test_bpc":{},"test_bpc_fp32":{},)"
        R"("low_ratio":0,"peak_bytes":1,"seconds":1,"metric":"bpc","higher_is_better":false}})"
        "\n",
        value, fp32);
  };
  const RunResult result = parse_result(bits(3, "3.5") + bits(2, "\"inf\"") + bits(2.5, "2"), "m");
  EXPECT_EQ(result.score(), (Score{"bpc", false}));
  EXPECT_EQ(result.best, 2);
  EXPECT_TRUE(std::isinf(result.best_fp32));
  EXPECT_EQ(parse_result(epoch(1, "2", 0.5, 0.5, 0, 1), "m").score(), Score{});
}

TEST(Results, AnEpochWithoutAFiniteLossIsNeverTheBest) {
  const std::string good = step(1, "2") + epoch(1, "2", 0.3, 0.35, 0, 1);
  const std::string diverged = R"({"event":"diverged","since":2,"until":3,"why":"diverged: it did"})"
                               "\n";
  const RunResult result = parse_result(good + step(2, "\"nan\"") + epoch(2, "\"nan\"", 0.9, 0.9, 0, 1) +
                                            step(3, "\"inf\"") + epoch(3, "3", 0.8, 0.8, 0, 1) + diverged,
                                        "m");
  EXPECT_EQ(result.best, 0.3);
  EXPECT_EQ(result.best_fp32, 0.35);
  EXPECT_TRUE(result.diverged);
  EXPECT_EQ(result.why, "diverged: it did");
  // A step that was skipped on the way spoils no epoch.
  EXPECT_EQ(parse_result(step(1, "\"inf\"", true) + step(2, "2") + epoch(1, "2", 0.5, 0.5, 0, 1), "m").best,
            0.5);
  EXPECT_TRUE(std::isnan(parse_result(step(1, "\"nan\"") + diverged, "m").best));
}

TEST(Results, OfARunThatIsNotOver) {
  const RunResult none = parse_result("", "m");
  EXPECT_EQ(none.steps, 0u);
  EXPECT_FALSE(none.done);
  const RunResult torn = parse_result(step(1, "2") + R"({"event":"st)", "m");
  EXPECT_EQ(torn.steps, 1u);
  EXPECT_TRUE(parse_result(step(1, "\"nan\""), "m").diverged);
  EXPECT_TRUE(parse_result(step(1, "\"-inf\""), "m").diverged);
  EXPECT_TRUE(std::isinf(parse_result(epoch(1, "\"inf\"", 0.1, 0.1, 0, 1), "m").train_loss));
  const std::string deep = "{\"event\":" + std::string(200000, '[') + std::string(200000, ']') + "}\n";
  for (const std::string& bad : {std::string("x\n"), std::string("[]\n"), std::string("{}\n"),
                                 std::string("{\"event\":\"step\"}\n"), std::string("{\"event\":3}\n"),
                                 std::string("{\"event\":\"done\",\"peak_bytes\":-1.5e300}\n"), deep}) {
    try {
      parse_result(step(1, "2") + bad, "m");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("line 2 of m"), std::string::npos) << error.what();
    }
  }
}

class ReportOfRuns : public testing::Test {
 protected:
  void add(const std::string& grid, std::vector<AxisValue> axes, JobState state, double accuracy, double fp32,
           const std::string& error = "") {
    SweepRun& run = runs.emplace_back();
    run.grid = grid;
    run.axes = std::move(axes);
    run.folder = grid + "/" + std::to_string(runs.size());
    SweepOutcome outcome;
    outcome.state = state;
    outcome.error = error;
    outcome.result.best = accuracy;
    outcome.result.best_fp32 = fp32;
    outcome.result.peak_bytes = runs.size() << 20;
    outcome.result.promotions = runs.size();
    outcome.result.steps = state == JobState::fresh ? 0 : 10;
    outcome.result.epochs = state == JobState::fresh ? 0 : 1;
    outcome.result.train_loss = 0;
    outcomes.push_back(outcome);
    // They move while more are added.
    for (size_t i = 0; i < runs.size(); ++i) outcomes[i].run = &runs[i];
  }

  // Makes the last one that was added a run on a text.
  void make_characters(bool begun = true) {
    RunConfig config;
    config.task = "characters";
    runs.back().base = std::make_shared<const RunConfig>(config);
    outcomes.back().result.epochs = begun ? 1 : 0;
    if (!begun) return;
    outcomes.back().result.metric = "bpc";
    outcomes.back().result.higher_is_better = false;
    outcomes.back().result.share = false;
  }

  std::vector<SweepRun> runs;
  std::vector<SweepOutcome> outcomes;
};

TEST_F(ReportOfRuns, HasARowForAllSeedsOfACombination) {
  add("a", {{"policy", "fp32"}, {"seed", "0"}}, JobState::finished, 0.5, 0.6);
  add("a", {{"policy", "fp32"}, {"seed", "1"}}, JobState::finished, 0.7, 0.8);
  add("a", {{"policy", "size:1"}, {"seed", "0"}}, JobState::finished, 0.4, 0.4);
  add("a", {{"policy", "size:1"}, {"seed", "1"}}, JobState::failed, 0.9, 0.9, "[train] it overflowed");
  add("b", {{"schedule", "multi-step:1,2:0.1"}}, JobState::begun, 0.9, 0.9);
  add("b", {{"schedule", "constant"}}, JobState::fresh, 0, 0);
  outcomes[3].result.diverged = true;
  const auto rows = report_rows(outcomes);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_NEAR(rows[0].best.mean, 0.6, 1e-12);
  EXPECT_EQ(rows[0].best.least, 0.5);
  EXPECT_EQ(rows[0].best.most, 0.7);
  EXPECT_NEAR(rows[0].best_fp32.mean, 0.7, 1e-12);
  EXPECT_EQ(rows[0].peak_bytes, size_t{2} << 20);
  EXPECT_EQ(rows[0].promotions, 1.5);
  EXPECT_EQ(rows[0].axes, (std::vector<AxisValue>{{"policy", "fp32"}}));
  EXPECT_EQ(rows[1].runs, 2u);
  EXPECT_EQ(rows[1].finished, 1u);
  EXPECT_EQ(rows[1].failed, 1u);
  EXPECT_EQ(rows[1].diverged, 1u);
  EXPECT_EQ(rows[1].best.mean, 0.4);  // not of the one that failed
  EXPECT_EQ(rows[2].missing, 1u);
  EXPECT_TRUE(std::isnan(rows[2].best.mean));

  const std::string text = report_markdown("title", outcomes);
  for (const char* words : {"# title", "## a", "## b", "60.00 (50.00..70.00)", "1 diverged, 1 failed",
                            "1 of 2", "- `a/4` failed after 10 steps, 1 epochs: [train] it overflowed",
                            "- `b/5` missing: stopped after 10 steps", "- `b/6` missing: not begun"}) {
    EXPECT_NE(text.find(words), text.npos) << words << "\n" << text;
  }
  const std::string csv = report_csv(outcomes);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_TRUE(csv.starts_with("grid,policy,schedule,runs,finished,failed,missing,diverged,best_test_acc,"))
      << csv;
  EXPECT_NE(csv.find("\na,fp32,cosine,2,2,0,0,0,0.6,0.5,0.7,0.7,0.6,0.8,0,0,1.5,0,2097152,0\n"), csv.npos)
      << csv;
  EXPECT_NE(csv.find("\nb,fp32,\"multi-step:1,2:0.1\",1,0,0,1,0,,,"), csv.npos) << csv;
}

TEST_F(ReportOfRuns, IsOfAccuracyInPercent) {
  add("a", {{"policy", "fp32"}}, JobState::finished, 0.5, 0.6);
  const std::string text = report_markdown("title", outcomes);
  EXPECT_NE(text.find("| policy | runs | best acc % | in fp32 % | train loss |"), text.npos) << text;
  EXPECT_NE(
      text.find(
          "\nMeans over seeds, with (least..most); figures are of finished runs. best acc: the highest "
          "test accuracy of an epoch;\nin fp32: the same weights, computed in fp32. low: elements stored "
          "low, mean over epochs. diverged: a loss was not finite.\n"),
      text.npos)
      << text;
  const std::string csv = report_csv(outcomes);
  EXPECT_TRUE(
      csv.starts_with("grid,policy,runs,finished,failed,missing,diverged,best_test_acc,best_test_acc_min,"
                      "best_test_acc_max,best_test_acc_fp32,best_test_acc_fp32_min,best_test_acc_fp32_max,"
                      "train_loss,low_ratio,promotions,skipped,peak_bytes,seconds\n"))
      << csv;
}

TEST_F(ReportOfRuns, IsOfTheMetricOfItsRuns) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  add("a", {{"policy", "fp32"}, {"seed", "0"}}, JobState::finished, 2.5, 2.75);
  make_characters();
  add("a", {{"policy", "fp32"}, {"seed", "1"}}, JobState::finished, 3.5, 2.75);
  make_characters();
  add("a", {{"policy", "size:1"}}, JobState::finished, nan, nan);
  make_characters();
  add("a", {{"policy", "uniform"}}, JobState::fresh, 0, 0);
  make_characters(false);
  const std::string text = report_markdown("title", outcomes);
  for (const char* words : {" best bpc | in fp32 |", " 3.0000 (2.5000..3.5000) |  2.7500 |",
                            " nan |     nan |", "best bpc: the lowest test bpc of an epoch;\nin fp32"})
    EXPECT_NE(text.find(words), text.npos) << words << "\n" << text;
  EXPECT_EQ(text.find("acc"), text.npos) << text;
  const std::string csv = report_csv(outcomes);
  EXPECT_TRUE(
      csv.starts_with("grid,policy,runs,finished,failed,missing,diverged,best_test_bpc,best_test_bpc_min,"))
      << csv;
  EXPECT_NE(csv.find("\na,fp32,2,2,0,0,0,3,2.5,3.5,2.75,2.75,2.75,"), csv.npos) << csv;
  EXPECT_NE(csv.find("\na,size:1,1,1,0,0,0,nan,nan,nan,nan,nan,nan,"), csv.npos) << csv;
  EXPECT_NE(csv.find("\na,uniform,1,0,0,1,0,,,,,,,"), csv.npos) << csv;
}

TEST_F(ReportOfRuns, NamesTheMetricOfEachRowWhereTheyDiffer) {
  add("a", {{"task", "classification"}}, JobState::finished, 0.5, 0.6);
  add("a", {{"task", "characters"}}, JobState::finished, 2.5, 2.75);
  make_characters();
  add("b", {{"policy", "fp32"}}, JobState::finished, 1.5, 1.25);
  make_characters();
  const std::string text = report_markdown("title", outcomes);
  for (const char* words :
       {"| runs |        best |     in fp32 |", "| acc % 50.00 | acc % 60.00 |",
        "|  bpc 2.5000 |  bpc 2.7500 |", "| best bpc | in fp32 |", "|   1.5000 |  1.2500 |",
        "best: the best test value of an epoch, by its metric;\nin fp32"})
    EXPECT_NE(text.find(words), text.npos) << words << "\n" << text;
  const std::string csv = report_csv(outcomes);
  EXPECT_TRUE(
      csv.starts_with("grid,task,policy,runs,finished,failed,missing,diverged,metric,best_test,best_test_min,"
                      "best_test_max,best_test_fp32,best_test_fp32_min,best_test_fp32_max,train_loss,"))
      << csv;
  EXPECT_NE(csv.find("\na,classification,fp32,1,1,0,0,0,acc,0.5,0.5,0.5,0.6,0.6,0.6,"), csv.npos) << csv;
  EXPECT_NE(csv.find("\na,characters,fp32,1,1,0,0,0,bpc,2.5,2.5,2.5,2.75,2.75,2.75,"), csv.npos) << csv;
}

TEST_F(ReportOfRuns, OfAnotherTaskThatHasNotBegunHasNoMetric) {
  add("a", {{"policy", "fp32"}}, JobState::fresh, 0, 0);
  make_characters(false);
  const std::string text = report_markdown("title", outcomes);
  EXPECT_NE(text.find("| best | in fp32 |"), text.npos) << text;
  EXPECT_NE(text.find("|    - |       - |"), text.npos) << text;
}

TEST(Table, IsAlignedAndEscaped) {
  const TextTable table{{{"name", true}, {"n"}}, {{"a|b", "1"}, {"c,\"d\"", "1000"}}};
  EXPECT_EQ(table.markdown(),
            "| name  |    n |\n"
            "| ----- | ---: |\n"
            "| a\\|b  |    1 |\n"
            "| c,\"d\" | 1000 |\n");
  EXPECT_EQ(table.csv(), "name,n\na|b,1\n\"c,\"\"d\"\"\",1000\n");
}

}  // namespace
}  // namespace ulp
