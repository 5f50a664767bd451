#include "ulp/report/runs_table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/temp.h"
#include "ulp/report/sparkline.h"

namespace ulp {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<RunLine> three() {
  return {{"assign/fp32-s0", "done", "epoch 30/30", "acc 91.23%", "0.1234", "83.1 MiB", "2h", {3, 2, 1}},
          {"assign/size_0.5-s10",
           "running",
           "epoch 3/30",
           "acc 61.00%",
           "1.5000",
           "60.0 MiB",
           "1s",
           {3, 3, 2, 1}},
          {"b", "empty", "epoch 0/30", "", "", "", "400d", {}}};
}

TEST(RunsTable, AsWideAsItComes) {
  const auto lines = lines_of(runs_table(three(), 0, true));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "run                  state    progress           best    loss  curve      peak   age");
  EXPECT_EQ(lines[1], "assign/fp32-s0       done     epoch 30/30  acc 91.23%  0.1234  #=_    83.1 MiB    2h");
  EXPECT_EQ(lines[2], "assign/size_0.5-s10  running  epoch 3/30   acc 61.00%  1.5000  ##=_   60.0 MiB    1s");
  EXPECT_EQ(lines[3], "b                    empty    epoch 0/30                                        400d");
}

TEST(RunsTable, NeverWiderThanTheTerminal) {
  std::vector<RunLine> lines = three();
  lines[0].curve.assign(1000, 1);
  lines[1].run = "日本語/" + std::string(70, 'x') + "/the-end";
  for (size_t columns = 1; columns < 200; ++columns) {
    for (const bool ascii : {false, true}) {
      for (const std::string& line : lines_of(runs_table(lines, columns, ascii)))
        EXPECT_LE(text_columns(line), columns) << line;
    }
  }
  // Nothing is given up before it must be: the table that fits is the one without a limit.
  const std::string whole = runs_table(lines, 0, false);
  size_t widest = 0;
  for (const std::string& line : lines_of(whole)) widest = std::max(widest, text_columns(line));
  EXPECT_EQ(runs_table(lines, widest, false), whole);
  EXPECT_NE(runs_table(lines, widest - 1, false), whole);
}

TEST(RunsTable, GivesUpWhatIsMissedLeast) {
  std::vector<RunLine> lines = three();
  lines[0].curve.assign(100, 1);
  const auto head = [&](size_t columns) { return lines_of(runs_table(lines, columns, true))[0]; };
  const auto has = [&](size_t columns, const char* title) {
    return head(columns).find(title) != std::string::npos;
  };
  EXPECT_TRUE(has(90, "curve"));
  EXPECT_FALSE(has(70, "curve"));
  EXPECT_TRUE(has(70, "peak"));
  EXPECT_FALSE(has(50, "peak"));
  EXPECT_TRUE(has(50, "best") && has(50, "state"));
  EXPECT_TRUE(has(26, "run") && has(26, "best"));
  EXPECT_EQ(head(4), "run");
  // Of a name the end stays.
  EXPECT_EQ(lines_of(runs_table(lines, 12, true))[2], "..ze_0.5-s10");
}

RunRecord record(const std::string& id, Number best, Number peak, int64_t changed) {
  RunRecord run;
  run.id = id;
  run.best = best;
  run.peak_bytes = peak;
  run.changed = changed;
  return run;
}

std::string order_of(std::vector<RunRecord> runs, RunOrder order) {
  sort_runs(runs, order);
  std::string text;
  for (const RunRecord& run : runs) text += run.id + " ";
  return text;
}

TEST(SortRuns, Orders) {
  std::vector<RunRecord> runs = {record("s10", 0.9, 10, 100), record("s2", {}, 30, 300),
                                 record("s1", 0.5, {}, 200), record("s02", std::nan(""), 20, 200),
                                 record("a", 0.7, 20, 50)};
  EXPECT_EQ(order_of(runs, RunOrder::name), "a s1 s02 s2 s10 ");
  EXPECT_EQ(order_of(runs, RunOrder::age), "s2 s1 s02 s10 a ");
  EXPECT_EQ(order_of(runs, RunOrder::metric), "s10 a s1 s02 s2 ");
  EXPECT_EQ(order_of(runs, RunOrder::peak), "s2 a s02 s10 s1 ");
  // Fewer bits per character are better, and another metric stands by itself.
  runs[0].score = runs[4].score = {"bpc", false};
  EXPECT_EQ(order_of(runs, RunOrder::metric), "s1 a s10 s02 s2 ");
}

TEST(SortRuns, NamesOfOrders) {
  EXPECT_EQ(run_order("peak"), RunOrder::peak);
  EXPECT_SAYS(run_order("size"), "age, name, metric, peak");
}

TEST(RunsTable, ProgressAndAge) {
  RunRecord run;
  run.steps = 40;
  EXPECT_EQ(progress_text(run), "step 40");
  run.config.emplace();
  run.config->epochs = 30;
  EXPECT_EQ(progress_text(run), "epoch 0/30");
  run.epochs.epoch = {1, 2, 3};
  EXPECT_EQ(progress_text(run), "epoch 3/30");
  run.config->epochs = 0;
  run.config->steps = 100;
  EXPECT_EQ(progress_text(run), "step 40/100");
  EXPECT_EQ(age_text(-5) + age_text(0) + age_text(59) + age_text(60) + age_text(3599), "0s0s59s1m59m");
  EXPECT_EQ(age_text(3600) + age_text(86399) + age_text(86400) + age_text(999 * 86400), "1h23h1d999d");
  EXPECT_EQ(age_text(INT64_MAX), "old");
}

}  // namespace
}  // namespace ulp
