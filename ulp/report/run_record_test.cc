#include "ulp/report/run_record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "tests/support/temp.h"
#include "ulp/base/file.h"

namespace ulp {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string step_line(uint64_t step, const std::string& loss = "2.5") {
  return fmt::format(
      R"J({{"event":"step","step":{},"loss":{},"lr":0.1,"scale":1.0,"skipped":{},"cancelled":0.25}})J"
      "\n",
      step, loss, step == 2 ? "true" : "false");
}
std::string epoch_line(uint64_t epoch, double acc, const std::string& test_loss = "0.5") {
  return fmt::format(
      R"J({{"event":"epoch","epoch":{},"train_loss":0.75,"train_acc":0.625,"test_loss":{},"test_acc":{},)J"
      R"J("test_acc_fp32":{},"low_ratio":0.5,"peak_bytes":{},"seconds":1.5,"examples_per_second":100.0}})J"
      "\n",
      epoch, test_loss, acc, acc + 0.125, 1000 * epoch);
}
constexpr const char* kPromotion =
    R"J({"event":"promote","step":3,"tensor":"conv1.out","from":"fp(4,3,4)","to":"fp(6,9,0)","overflow_ratio":0.25})J"
    "\n";
constexpr const char* kDone =
    R"J({"event":"done","best_test_acc":0.5,"final_test_acc":0.25,"peak_bytes":5000,"planned_peak_bytes":6000,)J"
    R"J("rss_start_bytes":1,"rss_peak_bytes":2,"seconds":9.0})J"
    "\n";

class RunRecords : public ::testing::Test {
 protected:
  RunRecords() {
    config_.model = "lenet";
    config_.batch = 8;
    config_.policy = "uniform";
    config_.promote = "off";
    config();
  }
  void config() { put(folder_ / "config.toml", config_text(config_)); }
  RunRecord read(const std::string& metrics, ReadBudget budget = {}) {
    put(folder_ / "metrics.jsonl", metrics);
    return read_run({"id", folder_.path()}, budget, HeldLocks());
  }
  // Of two tensors of lenet in twelve steps.
  void ranges(float overflow) {
    const std::vector<RangedTensor> tensors = {
        {"conv1.out", Kind::activation, 27648, "fp(4,3,4)", "fp(6,9,0)"},
        {"conv1.out.grad", Kind::activation_grad, 27648, "fp(5,2,0)", "fp(6,9,0)"}};
    RangeFile file(folder_ / "ranges.bin", {"1x28x28", 10}, tensors, 0);
    for (uint64_t step = 1; step <= 12; ++step) {
      const bool over = step >= 10;
      file.write({step, 2, 1, false, {{over ? 60.0f : 20.0f, over ? overflow : 0, 0}, {1, 0, 0}}}, 12, false);
    }
  }
  static std::string all(const std::vector<std::string>& notes) {
    std::string text;
    for (const std::string& note : notes) text += note + "\n";
    return text;
  }

  TempFolder folder_;
  RunConfig config_;
};

TEST_F(RunRecords, AWholeRun) {
  const RunRecord record = read(step_line(1, "3.5") + step_line(2) + epoch_line(1, 0.5) + step_line(3) +
                                kPromotion + step_line(4, "1.5") + epoch_line(2, 0.25) + kDone);
  EXPECT_EQ(record.state, RunState::done);
  EXPECT_EQ(all(record.notes), "");
  EXPECT_EQ(record.id, "id");
  EXPECT_EQ(record.steps, 4u);
  EXPECT_EQ(record.skipped, 1u);
  EXPECT_EQ(record.score, (Score{"acc", true}));
  EXPECT_EQ(record.curve.stride, 1u);
  EXPECT_EQ(record.curve.loss, (std::vector<double>{3.5, 2.5, 2.5, 1.5}));
  EXPECT_EQ(record.curve.cancelled, (std::vector<double>(4, 0.25)));
  EXPECT_EQ(record.epochs.epoch, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(record.epochs.step, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(record.epochs.test, (std::vector<Number>{0.5, 0.25}));
  EXPECT_EQ(record.epochs.test_fp32, (std::vector<Number>{0.625, 0.375}));
  EXPECT_EQ(record.epochs.train, (std::vector<Number>{0.625, 0.625}));
  EXPECT_EQ(record.best, Number(0.5));
  EXPECT_EQ(record.best_fp32, Number(0.625));
  EXPECT_EQ(record.peak_bytes, Number(5000));
  EXPECT_EQ(record.planned_peak_bytes, Number(6000));
  EXPECT_EQ(record.seconds, Number(3));
  ASSERT_EQ(record.promotions.size(), 1u);
  EXPECT_EQ(record.promotions[0].tensor, "conv1.out");
  EXPECT_EQ(record.promotions[0].overflow_ratio, 0.25);
  EXPECT_GT(record.changed, 1'500'000'000);
  EXPECT_EQ(record.settings.size(), config_fields().size());
}

// An epoch of a task that is judged by bpc and measures more.
std::string bpc_line(uint64_t epoch, double bpc, const std::string& more) {
  return fmt::format(
      R"J({{"event":"epoch","epoch":{},"train_loss":0.75,"train_bpc":2.5,"test_loss":0.5,"test_bpc":{},)J"
      R"J("test_bpc_fp32":1.75,{}"low_ratio":0.5,"metric":"bpc","higher_is_better":false}})J"
      "\n",
      epoch, bpc, more);
}

TEST_F(RunRecords, EveryMetricOfATask) {
  const RunRecord record =
      read(step_line(1) + bpc_line(1, 2.25, R"("train_acc":0.25,"test_acc":0.5,"test_acc_fp32":0.625,)") +
           step_line(2) + bpc_line(2, 1.5, R"("test_acc":"nan","test_auc":0.75,"test_odd_fp32":8,)") +
           step_line(3) + bpc_line(3, 2.5, ""));
  EXPECT_EQ(all(record.notes), "");
  EXPECT_EQ(record.score, (Score{"bpc", false, false}));
  const EpochColumns& epochs = record.epochs;
  EXPECT_EQ(epochs.test, (std::vector<Number>{2.25, 1.5, 2.5}));
  EXPECT_EQ(epochs.best, std::optional<size_t>(1)) << "the least bpc";
  ASSERT_EQ(epochs.others.size(), 3u);
  const std::vector<Number> none(3);
  const OtherMetric& acc = epochs.others[0];
  EXPECT_EQ(acc.name, "acc");
  EXPECT_EQ(acc.train, (std::vector<Number>{0.25, {}, {}}));
  ASSERT_EQ(acc.test.size(), 3u);
  EXPECT_EQ(acc.test[0], Number(0.5));
  EXPECT_TRUE(std::isnan(acc.test[1].value()));
  EXPECT_EQ(acc.test[2], Number());
  EXPECT_EQ(acc.test_fp32, (std::vector<Number>{0.625, {}, {}}));
  const OtherMetric& auc = epochs.others[1];
  EXPECT_EQ(auc.name, "auc");
  EXPECT_EQ(auc.test, (std::vector<Number>{{}, 0.75, {}}));
  EXPECT_EQ(auc.train, none);
  EXPECT_EQ(auc.test_fp32, none);
  EXPECT_EQ(epochs.others[2].name, "odd_fp32") << "there is no odd";
  EXPECT_EQ(epochs.others[2].test, (std::vector<Number>{{}, 8, {}}));
}

TEST_F(RunRecords, TooManyMetricsAreANote) {
  std::string more;
  for (int i = 0; i < 100; ++i) more += fmt::format(R"("test_m{}":{},)", i, i);
  const RunRecord record = read(step_line(1) + bpc_line(1, 2, more) + step_line(2) + bpc_line(2, 1, more));
  ASSERT_EQ(record.epochs.others.size(), kMostMetrics);
  EXPECT_EQ(record.epochs.others.back().test, (std::vector<Number>{15, 15}));
  EXPECT_EQ(all(record.notes), "metrics after the first 17 are left out: there are too many\n");
  // A value of another type damages its line, and that line alone.
  const RunRecord odd =
      read(step_line(1) + bpc_line(1, 2, R"("test_acc":"x",)") + bpc_line(2, 1, R"("test_acc":1,)"));
  EXPECT_EQ(odd.notes.size(), 1u);
  EXPECT_EQ(odd.epochs.epoch, (std::vector<uint64_t>{2}));
  EXPECT_EQ(odd.epochs.others.at(0).test, (std::vector<Number>{1}));
}

TEST_F(RunRecords, StatesByWhatIsThere) {
  EXPECT_EQ(read("").state, RunState::empty);
  EXPECT_EQ(read(step_line(1)).state, RunState::stopped);
  put(folder_ / "error.txt", "warning\nulp: [train] the disk is full\n");
  EXPECT_EQ(read(step_line(1)).state, RunState::failed);
  EXPECT_EQ(all(read(step_line(1)).notes), "it failed: [train] the disk is full\n");
  const std::string diverged = R"J({"event":"diverged","since":1,"until":1,"why":"diverged: nan"})J"
                               "\n";
  EXPECT_EQ(read(step_line(1, "\"nan\"") + diverged).state, RunState::diverged);
  EXPECT_EQ(read(step_line(1) + kDone).state, RunState::done);
  EXPECT_EQ(read(step_line(1) + kDone + step_line(2)).state, RunState::failed) << "it was made longer";
  const FileLock lock(folder_ / ".lock");
  EXPECT_EQ(read(step_line(1) + kDone).state, RunState::running);
}

TEST_F(RunRecords, ATornLastLineIsANoteUnlessTheRunGoesOn) {
  const std::string text = step_line(1) + step_line(2).substr(0, 40);
  RunRecord record = read(text);
  EXPECT_EQ(record.steps, 1u);
  EXPECT_EQ(all(record.notes), "line 2 of metrics.jsonl is torn: the run ended while it was written\n");
  const FileLock lock(folder_ / ".lock");
  EXPECT_EQ(all(read(text).notes), "");
}

TEST_F(RunRecords, ADamagedLineIsANoteAndWhatFollowsIsRead) {
  const RunRecord record =
      read(step_line(1) + "garbage\n" + step_line(2) + "{\"event\":\"step\",\"step\":3}\n" +
           "{\"event\":\"epoch\",\"epoch\":1}\n[]\n" + step_line(2) + step_line(4) + epoch_line(1, 0.5));
  EXPECT_EQ(record.curve.step, (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(record.epochs.count(), 1u);
  const std::string notes = all(record.notes);
  for (const char* line :
       {"line 2 of metrics.jsonl is no JSON object", "line 4 of metrics.jsonl is none", "line 5 of",
        "line 6 of", "line 7 of metrics.jsonl has a step that does not come after"})
    EXPECT_NE(notes.find(line), std::string::npos) << line << " in\n" << notes;
  EXPECT_NE(notes.find("needs \"loss\" with a number"), std::string::npos) << notes;
}

TEST_F(RunRecords, NotesOnALogThatIsDamagedThroughoutAreFew) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "garbage\n";
  const RunRecord record = read(text + step_line(1));
  ASSERT_EQ(record.notes.size(), 6u);
  EXPECT_EQ(record.notes.back(), "995 more lines of metrics.jsonl are damaged");
  EXPECT_EQ(record.steps, 1u);
}

TEST_F(RunRecords, ALineWithoutAnEnd) {
  const RunRecord record = read(step_line(1) + std::string(5 << 20, 'x') + "\n" + step_line(2));
  EXPECT_EQ(record.steps, 2u);
  EXPECT_EQ(all(record.notes), "line 2 of metrics.jsonl is longer than any that training writes\n");
}

TEST_F(RunRecords, NanAndInfinities) {
  const RunRecord record =
      read(step_line(1, "\"nan\"") + step_line(2, "\"-inf\"") + epoch_line(1, 0.5, "\"nan\""));
  EXPECT_TRUE(std::isnan(record.curve.loss[0]));
  EXPECT_EQ(record.curve.loss[1], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(*record.epochs.test_loss[0]));
  EXPECT_FALSE(record.best) << "an epoch without a finite loss is never the best";
}

// The quick way and the general one say the same of every line.
TEST_F(RunRecords, StepsAreReadAlikeInAnyForm) {
  const auto curve = [&](const std::string& line) {
    const RunRecord record = read(line);
    EXPECT_EQ(record.curve.step.size(), 1u) << line << all(record.notes);
    return record.curve;
  };
  for (const char* loss : {"2", "0.1", "1e-7", "-3.25E+2", "\"nan\"", "\"inf\""}) {
    const std::string quick = step_line(7, loss);
    const std::string other = fmt::format("{{ {}", std::string_view(quick).substr(1));
    const Curve a = curve(quick), b = curve(other);
    EXPECT_EQ(a.step, b.step);
    EXPECT_TRUE(a.loss == b.loss || std::isnan(a.loss[0])) << loss;
    EXPECT_EQ(std::isnan(a.loss[0]), std::isnan(b.loss[0]));
    EXPECT_EQ(a.lr, b.lr);
    EXPECT_EQ(a.cancelled, b.cancelled);
  }
  for (const char* loss : {"nan", "+1", ".5", "\"x\"", "null", ""})
    EXPECT_EQ(read(step_line(7, loss)).notes.size(), 1u) << loss;
}

TEST_F(RunRecords, AConfigurationThatCannotBeRead) {
  put(folder_ / "config.toml", "model = 3\n");
  RunRecord record = read(step_line(1));
  EXPECT_FALSE(record.config);
  EXPECT_EQ(record.steps, 1u);
  ASSERT_EQ(record.notes.size(), 1u);
  EXPECT_NE(record.notes[0].find("config.toml"), std::string::npos) << record.notes[0];
  std::filesystem::remove(folder_ / "config.toml");
  record = read(step_line(1));
  EXPECT_EQ(record.notes.size(), 1u);
}

TEST_F(RunRecords, GroupsDifferInAnythingButTheSeed) {
  const auto group = [&](auto change) {
    const RunConfig before = config_;
    change(config_);
    config();
    config_ = before;
    return read("").group;
  };
  const std::string first = group([](RunConfig&) {});
  EXPECT_EQ(group([](RunConfig& config) { config.seed = 7; }), first);
  EXPECT_EQ(group([](RunConfig& config) { config.threads = 7; }), first);
  EXPECT_EQ(group([](RunConfig& config) { config.data_dir = "/elsewhere"; }), first);
  EXPECT_NE(group([](RunConfig& config) { config.lr = 0.5; }), first);
  EXPECT_NE(group([](RunConfig& config) { config.policy = "fp32"; }), first);
}

TEST_F(RunRecords, LabelsSayWhatDiffers) {
  const auto record = [&](const std::string& policy, double lr, uint64_t seed) {
    RunConfig config = config_;
    config.policy = policy;
    config.lr = lr;
    config.seed = seed;
    config_ = config;
    this->config();
    return read("");
  };
  std::vector<RunRecord> records = {record("fp32", 0.1, 1), record("fp32", 0.1, 2)};
  label_groups(records);
  EXPECT_EQ(records[0].label, "lenet, fp32");
  EXPECT_EQ(records[1].label, "lenet, fp32");
  records.push_back(record("uniform", 0.1, 1));
  records.push_back(record("uniform", 0.5, 1));
  put(folder_ / "config.toml", "model = 3\n");
  records.push_back(read(""));
  label_groups(records);
  EXPECT_EQ(records[0].label, "fp32");
  EXPECT_EQ(records[2].label, "uniform");
  EXPECT_EQ(records[3].label, "uniform, lr 0.5");
  EXPECT_EQ(records[4].label, "no configuration: id");
}

TEST_F(RunRecords, LabelsOfDifferentGroupsDiffer) {
  std::vector<RunRecord> records;
  const auto add = [&](auto change) {
    RunConfig before = config_;
    change(config_);
    config();
    config_ = before;
    records.push_back(read(""));
  };
  add([](RunConfig&) {});
  add([](RunConfig& config) { config.lr = 0.5; });
  label_groups(records);
  // No value is that of more than half of them.
  EXPECT_EQ(records[0].label, "lr " + find_config_field("lr").get(config_));
  EXPECT_EQ(records[1].label, "lr 0.5");
  add([](RunConfig& config) { config.nesterov = !config.nesterov; });
  add([](RunConfig& config) { config.hi = "fp16"; });
  add([](RunConfig& config) { config.steps = 7; });
  add([](RunConfig& config) { config.epochs += 1; });
  label_groups(records);
  std::set<std::string> labels;
  for (const RunRecord& record : records) EXPECT_TRUE(labels.insert(record.label).second) << record.label;
  EXPECT_EQ(records[0].label, config_.model + ", " + config_.policy);
  EXPECT_EQ(records[1].label, "lr 0.5");
  EXPECT_EQ(records[3].label, "hi fp16");
  EXPECT_EQ(records[4].label, "steps 7");
}

TEST_F(RunRecords, TheDoctorsWords) {
  ranges(0.25f);
  const RunRecord record = read(step_line(1));
  ASSERT_TRUE(record.doctor);
  EXPECT_EQ(record.doctor->text, check_up_text(check_up(folder_.path())));
  EXPECT_TRUE(record.treated);
  EXPECT_NE(record.doctor->sentence.find("forward overflow in conv1.out since step 10"), std::string::npos);
  ASSERT_TRUE(record.heat);
  EXPECT_NE(record.heat->words.at("conv1.out").find("Overflowed first at step 10: 25% of its 27648 elements"),
            std::string::npos)
      << record.heat->words.at("conv1.out");
  ReadBudget budget;
  budget.remedies = false;
  const RunRecord untreated = read(step_line(1), budget);
  EXPECT_EQ(untreated.doctor->sentence, record.doctor->sentence);
  EXPECT_NE(untreated.doctor->text.find("No remedies: left out of this report"), std::string::npos);
  // A log that the doctor refuses.
  const RunRecord damaged = read(std::string("garbage\n") + step_line(1));
  EXPECT_EQ(damaged.doctor->sentence, record.doctor->sentence);
}

TEST_F(RunRecords, DamagedRangesAreANote) {
  ranges(0.25f);
  std::string bytes = content(folder_ / "ranges.bin");
  bytes[bytes.size() / 2] ^= 1;
  put(folder_ / "ranges.bin", bytes);
  RunRecord record = read(step_line(1));
  EXPECT_FALSE(record.heat);
  ASSERT_EQ(record.notes.size(), 1u);
  EXPECT_NE(record.notes[0].find("ranges.bin is damaged after step"), std::string::npos) << record.notes[0];
  put(folder_ / "ranges.bin", "nothing of the kind");
  EXPECT_EQ(read(step_line(1)).notes.size(), 1u);
}

TEST_F(RunRecords, HeatIsTheLargestOfEachBucket) {
  rc::check([] {
    RangeHistory history;
    const auto tensors = *rc::gen::inRange<size_t>(1, 4), records = *rc::gen::inRange<size_t>(1, 300);
    history.tensors.resize(tensors);
    for (size_t i = 0; i < records; ++i) {
      RangeRecord record;
      record.step = 1 + 3 * i;
      for (size_t t = 0; t < tensors; ++t) {
        const auto number = [] { return static_cast<float>(*rc::gen::inRange(0, 1000)) / 1024; };
        record.tensors.push_back({*rc::gen::inRange(0, 9) == 0 ? kNan : number(), number(), number()});
      }
      history.records.push_back(std::move(record));
    }
    ReadBudget budget;
    budget.heat_columns = *rc::gen::inRange<size_t>(1, 100);
    budget.heat_cells = *rc::gen::inRange<size_t>(1, 300);
    const HeatMap map = heat_of(history, budget);
    const size_t columns = map.step.size();
    RC_ASSERT(columns <= budget.heat_columns);
    RC_ASSERT(columns <= std::max<size_t>(24, budget.heat_cells / tensors));
    for (size_t t = 0; t < tensors; ++t) {
      size_t i = 0;
      for (size_t c = 0; c < columns; ++c) {
        float amax = 0, overflow = 0, underflow = 0;
        bool nan = false;
        for (; i < records && history.records[i].step <= map.step[c]; ++i) {
          const TensorRange& range = history.records[i].tensors[t];
          nan = nan || std::isnan(range.amax);
          amax = std::isnan(range.amax) ? amax : std::max(amax, range.amax);
          overflow = std::max(overflow, range.overflow);
          underflow = std::max(underflow, range.underflow);
        }
        const size_t at = t * columns + c;
        RC_ASSERT(map.overflow[at] == overflow);
        RC_ASSERT(map.underflow[at] == underflow);
        RC_ASSERT((nan ? std::isnan(map.amax[at]) : map.amax[at] == amax));
      }
      RC_ASSERT(i == records);
    }
  });
}

TEST_F(RunRecords, AStampChangesWithTheFiles) {
  const FoundRun run{"id", folder_.path()};
  read(step_line(1));
  const std::string first = run_stamp(run, HeldLocks());
  EXPECT_EQ(run_stamp(run, HeldLocks()), first);
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << step_line(2);
  const std::string second = run_stamp(run, HeldLocks());
  EXPECT_NE(second, first);
  const FileLock lock(folder_ / ".lock");
  EXPECT_NE(run_stamp(run, HeldLocks()), second);
}

TEST(ReadBudgets, AreBoundedHoweverManyRuns) {
  EXPECT_EQ(budget_for(1).curve, 4000u);
  EXPECT_EQ(budget_for(0).curve, 4000u);
  EXPECT_EQ(budget_for(200).curve, 2000u);
  EXPECT_EQ(budget_for(1'000'000).curve, 64u);
  EXPECT_EQ(budget_for(333).curve % 2, 0u);
}

}  // namespace
}  // namespace ulp
