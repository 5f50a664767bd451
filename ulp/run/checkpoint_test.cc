#include "ulp/run/checkpoint.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp.h"
#include "ulp/io/safetensors.h"
#include "ulp/runtime/registry.h"
#include "ulp/tasks/task.h"

namespace ulp {
namespace {

class Checkpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    RunProgress progress;
    progress.step = 17;
    progress.epoch_weight = 9;
    progress.epoch_metrics = {{"correct", "5"}, {"examples", "9"}};
    save_run_checkpoint(path_, "epochs 3; seed 1", state_, progress);
  }
  RunProgress load(const std::string& run = "epochs 3; seed 1") {
    return load_run_checkpoint(path_, run, "acc", [&](const StepProgress&) -> State& { return state_; });
  }
  // As somebody else may have written it: the checksums are right.
  void change(const std::string& key, const std::string& value) {
    const TensorFile file(path_);
    TensorMetadata metadata = file.metadata();
    metadata[key] = value;
    save_tensors(path_, file.tensors(), metadata);
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "last.safetensors";
  Memory memory_{device_of(find_backend("reference"))};
  State state_{memory_};
};

TEST_F(Checkpoint, WhatDoesNotParseIsRefused) {
  EXPECT_EQ(load().step, 17u);
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"step", {"", "x", "17x", "-1", "1.5", "18446744073709551616", " 17"}},
      {"updates", {"", "-3", "1e3"}},
      {"loss_scale", {"", "one", "0", "-2", "inf", "nan"}},
      {"loss_scale_good", {"", "-1"}},
      {"loss_scale_skipped", {"", "many"}},
      {"epochs_done", {"", "1.0", "-1"}},
      {"epoch_loss", {"", "low"}},
      {"epoch_examples", {"", "0x10"}},
      {"best_test_acc", {"", "good"}},
      {"final_test_acc", {"", "0.5 "}},
      {"finished", {"", "2", "yes", "-1"}}};
  for (const auto& [key, texts] : cases) {
    const std::string good = TensorFile(path_).metadata().at(key);
    for (const std::string& text : texts) {
      change(key, text);
      const std::string why = complaint_of([&] { load(); }, path_);
      EXPECT_NE(why, "") << key << " '" << text << "'";
      EXPECT_NE(why.find(key == "loss_scale" ? "loss" : key), why.npos) << why;
    }
    change(key, good);
    EXPECT_EQ(load().step, 17u) << key;
  }
}

TEST_F(Checkpoint, OnlyWholeNumbersOfEpochsAreCompared) {
  change("finished", "1");
  EXPECT_TRUE(load("epochs 4; seed 1").longer);
  for (const char* text : {"epochs 4x; seed 1", "epochs ; seed 1", "epochs 2; seed 1"})
    EXPECT_NE(complaint_of([&] { load(text); }, path_), "") << text;
  change("run", "epochs x; seed 1");
  EXPECT_NE(complaint_of([&] { load("epochs 4; seed 1"); }, path_), "");
}

TEST_F(Checkpoint, OfALongerRunIsEvaluatedFromWithin) {
  change("finished", "0");
  const auto evaluate = [&] {
    return load_run_checkpoint(
        path_, "epochs 4; seed 1", "acc", [&](const StepProgress&) -> State& { return state_; },
        LoadFor::evaluation);
  };
  EXPECT_NE(complaint_of([&] { load("epochs 4; seed 1"); }, path_).find("finish it first"),
            std::string::npos);
  EXPECT_EQ(evaluate().step, 17u);
  EXPECT_FALSE(evaluate().finished);
}

TEST_F(Checkpoint, AnItemThatIsMissingIsNamed) {
  const auto why = [&](const std::string& run) { return complaint_of([&] { load(run); }, path_); };
  EXPECT_NE(
      why("epochs 3; seed 1; s2fp8 unscaled").find("a run without 's2fp8 unscaled', which this one has"),
      std::string::npos);
  EXPECT_NE(why("epochs 3").find("a run with 'seed 1', which this one lacks"), std::string::npos);
}

TEST(MeterState, CountsAreWholeNumbers) {
  TaskOptions options;
  options.model = "mlp";
  options.data = "synthetic";
  options.image_shape = "8x8x1";
  const std::unique_ptr<Meter> meter = outline_task(options)->meter();
  meter->restore({{"correct", "5"}, {"examples", "10"}});
  EXPECT_EQ(meter->values(), std::vector<double>{0.5});
  for (const char* text : {"", "x", "5.5", "-1", "1e300", "nan"}) {
    EXPECT_THROW(meter->restore({{"correct", text}, {"examples", "10"}}), Error) << text;
  }
}

}  // namespace
}  // namespace ulp
