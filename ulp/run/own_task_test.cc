// A run of a task that is none of Ulp's, with a metric of its own: what stands in its files, and
// that it resumes.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/support/pairs_task.h"
#include "tests/support/temp.h"
#include "ulp/base/json.h"
#include "ulp/io/safetensors.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

RunConfig config_of(const std::string& folder) {
  static const bool added = (add_task(pairs_task()), true);
  EXPECT_TRUE(added);
  RunConfig config;
  config.task = "pairs";
  config.model = "logistic";
  config.data = "pairs";
  config.batch = 16;
  config.epochs = 3;
  config.optimizer = "adam";
  config.lr = 0.03;
  config.policy = "size:0.5";
  config.out = folder;
  return config;
}

std::vector<Json> lines_of(const std::string& folder, std::string_view event) {
  std::vector<Json> lines;
  const std::string text = content(folder + "/metrics.jsonl");
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const Json line = parse_json(text.substr(at, end - at));
    if (line.at("event") == event) lines.push_back(line);
    at = end + 1;
  }
  return lines;
}

// Stops after so many steps.
class Watcher : public Observer {
 public:
  explicit Watcher(uint64_t steps) : steps_(steps) {}
  void on_step(const StepReport& report) override {
    EXPECT_TRUE(report.epoch_metrics.at(0).share);
    if (report.step == steps_) stop = true;
  }
  void on_epoch(const EpochReport& report) override {
    ++epochs;
    EXPECT_TRUE(report.test_fp32.empty());
    EXPECT_TRUE(report.test.at(0).share);
    EXPECT_TRUE(report.narrow);
  }
  void on_done(const DoneReport& report) override { done = report; }

  std::atomic<bool> stop = false;
  int epochs = 0;
  DoneReport done;

 private:
  const uint64_t steps_;
};

TEST(OwnTask, ItsFilesNameTheMetric) {
  const TempFolder folder;
  Watcher watcher(0);
  ASSERT_EQ(train(config_of(folder / "run"), false, watcher, watcher.stop), Outcome::finished);
  const std::vector<Json> epochs = lines_of(folder / "run", "epoch");
  ASSERT_EQ(epochs.size(), 3u);
  for (const Json& line : epochs) {
    EXPECT_EQ(line.at("metric"), "auc");
    EXPECT_EQ(line.at("higher_is_better"), true);
    EXPECT_EQ(line.at("share"), true);
    EXPECT_FALSE(line.contains("test_auc_fp32"));
    EXPECT_GT(line.at("test_auc").get<double>(), 0.5);
  }
  EXPECT_GT(epochs.back().at("test_auc").get<double>(), 0.8);
  EXPECT_EQ(watcher.epochs, 3);
  EXPECT_EQ(watcher.done.best_test.name, "auc");
  EXPECT_TRUE(watcher.done.best_test.share);
  EXPECT_EQ(lines_of(folder / "run", "done").at(0).at("metric"), "auc");
  for (const char* file : {"run/last.safetensors", "run/best.safetensors"}) {
    const TensorFile saved(folder / file);
    EXPECT_EQ(saved.metadata().at("metric"), "auc");
    EXPECT_EQ(saved.metadata().at("higher_is_better"), "1");
    EXPECT_TRUE(saved.metadata().contains("best_test_auc"));
  }
  Observer quiet;
  const Evaluation result = Trainer(config_of(folder / "run"), quiet).evaluate("last");
  EXPECT_EQ(result.metrics.at(0).value, epochs.back().at("test_auc").get<double>());
  EXPECT_TRUE(result.metrics_fp32.empty());
}

// Within an epoch too, where the meter has seen a part of the scores.
TEST(OwnTask, ResumesByteForByte) {
  const TempFolder folder;
  Watcher whole(0);
  train(config_of(folder / "whole"), false, whole, whole.stop);
  for (const uint64_t steps : {1, 10, 17, 29}) {
    const std::string name = folder / ("run" + std::to_string(steps));
    Watcher first(steps), second(0);
    ASSERT_EQ(train(config_of(name), false, first, first.stop), Outcome::interrupted);
    ASSERT_EQ(train(config_of(name), true, second, second.stop), Outcome::finished);
    EXPECT_EQ(content(name + "/last.safetensors"), content(folder / "whole/last.safetensors")) << steps;
    EXPECT_EQ(lines_of(name, "epoch").at(1).at("train_auc"),
              lines_of(folder / "whole", "epoch").at(1).at("train_auc"));
  }
}

}  // namespace
}  // namespace ulp
