#include "ulp/doctor/checkup.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "tests/support/pairs_task.h"
#include "tests/support/temp.h"
#include "ulp/run/config.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

class CheckUps : public ::testing::Test {
 protected:
  CheckUps() {
    config_.model = "lenet";
    config_.batch = 8;
    config_.policy = "uniform";
    config_.promote = "off";
  }

  // A run of twelve steps in which two tensors of lenet were narrow.
  void run_with(float overflow, std::string_view metrics) {
    put(folder_ / "config.toml", config_text(config_));
    put(folder_ / "metrics.jsonl", metrics);
    const std::vector<RangedTensor> tensors = {
        {"conv1.out", Kind::activation, 27648, "fp(4,3,4)", "fp(6,9,0)"},
        {"conv1.out.grad", Kind::activation_grad, 27648, "fp(5,2,0)", "fp(6,9,0)"}};
    std::filesystem::remove(folder_ / "ranges.bin");
    RangeFile file(folder_ / "ranges.bin", {"1x28x28", 10}, tensors, 0);
    for (uint64_t step = 1; step <= 12; ++step) {
      const bool over = step >= 10;
      file.write({step, 2, 1, false, {{over ? 60.0f : 20.0f, over ? overflow : 0, 0}, {1, 0, 0}}}, 12, false);
    }
  }
  std::string refusal() const {
    return complaint_of([&] { check_up(folder_.path()); }, folder_.path());
  }

  TempFolder folder_;
  RunConfig config_;
};

TEST_F(CheckUps, TheWholeText) {
  run_with(0.25f, "{\"event\":\"step\",\"step\":1,\"loss\":1}\n");
  const CheckUp found = check_up(folder_.path());
  ASSERT_EQ(found.treatments.size(), 1u);
  ASSERT_EQ(found.treatments[0].remedies.size(), 4u);
  EXPECT_EQ(found.treatments[0].remedies[0].aggregate_bits, 8 * 8 * 6 * 24 * 24);
  EXPECT_GT(found.step.peak_bytes, 0u);
  const std::string text = check_up_text(found);
  EXPECT_TRUE(
      text.starts_with("Forward overflow in conv1.out since step 10: up to 25% of it was beyond 30, the "
                       "largest number of fp(4,3,4).\n"
                       "\n"
                       "Steps             1 to 12, 12 of them recorded; 2 narrow tensors, 0 promoted\n"
                       "Loss scale        1\n"
                       "First to overflow conv1.out at step 10: 25.0% of its 27648 elements\n"
                       "                  activation in fp(4,3,4), largest magnitude 60, largest number 30\n"
                       "First flushed     none\n"
                       "\n"
                       "How conv1.out moved\n"
                       "      step         amax    amax / largest   overflow    flushed\n"
                       "         2           20            2^-0.6          0          0\n"))
      << text;
  EXPECT_NE(text.find("        10           60            2^+1.0      25.0%          0\n\nOverflow"),
            text.npos)
      << text;
  EXPECT_NE(text.find("conv1.out  fp(4,3,4)     6.25%   25.0%        10  .........###\n"), text.npos) << text;
  EXPECT_NE(text.find("       --formats 'conv1.out=fp(6,9,0)'\n       27.0 KiB more for tensors, "),
            text.npos)
      << text;
}

TEST_F(CheckUps, TheShortText) {
  run_with(0.25f, "");
  const std::string text = doctor_report(folder_.path());
  EXPECT_TRUE(text.starts_with("Forward overflow in conv1.out since step 10")) << text;
  EXPECT_NE(text.find("--formats 'conv1.out=fp(6,9,0)'"), text.npos) << text;
  EXPECT_TRUE(text.ends_with("More: ulp doctor " + folder_.path() + "\n")) << text;
  EXPECT_EQ(text.find("How conv1.out moved"), text.npos) << text;
  EXPECT_TRUE(
      doctor_report("/no/run").starts_with("The doctor cannot tell why: [doctor] /no/run holds no run"));
}

TEST_F(CheckUps, PromotionsComeFromTheMetrics) {
  const std::string promote =
      R"~({"event":"promote","step":12,"tensor":"conv1.out","from":"fp(4,3,4)","to":"fp(6,9,0)",)~"
      R"~("overflow_ratio":0.2})~";
  run_with(0.25f, "{\"event\":\"step\",\"step\":1,\"loss\":1}\n" + promote + "\n{\"event\":\"st");
  EXPECT_EQ(check_up(folder_.path()).diagnosis.condition, Condition::settled);
  EXPECT_TRUE(check_up(folder_.path()).treatments.empty());
  EXPECT_EQ(check_up(folder_.path(), 11).diagnosis.condition, Condition::forward_overflow);
  EXPECT_EQ(check_up(folder_.path(), 11).moved.back().step, 11u);
  const std::string deep = "{\"event\":" + std::string(200000, '[') + std::string(200000, ']') + "}\n";
  std::string huge = promote + "\n";
  huge.replace(huge.find("12"), 2, "1.5e300");
  for (const std::string& damaged :
       {std::string("x\n"), std::string("[]\n{}\n"), std::string("{\"event\":\"promote\",\"step\":1}\n"),
        std::string("\n{}\n"), deep, huge}) {
    put(folder_ / "metrics.jsonl", damaged);
    EXPECT_EQ(refusal(), "[doctor] line 1 of F/metrics.jsonl is damaged") << damaged;
  }
  std::filesystem::remove(folder_ / "metrics.jsonl");
  EXPECT_EQ(check_up(folder_.path()).diagnosis.condition, Condition::forward_overflow);
}

TEST_F(CheckUps, OfATaskWithoutInputAndClasses) {
  add_task(pairs_task());
  config_.task = config_.data = "pairs";
  config_.model = "logistic";
  config_.epochs = 2;
  config_.optimizer = "adam";
  config_.lr = 0.03;
  config_.policy = "size:0.5";
  config_.promote = "off";
  config_.formats = "hidden.out=fp(4,3,12)";  // which overflows, so that remedies are planned
  config_.out = folder_ / "run";
  Observer nobody;
  const std::atomic<bool> stop = false;
  ASSERT_EQ(train(config_, false, nobody, stop), Outcome::finished);
  const CheckUp found = check_up(config_.out);
  EXPECT_EQ(found.diagnosis.condition, Condition::forward_overflow);
  ASSERT_FALSE(found.treatments.empty());
  EXPECT_GT(found.step.peak_bytes, 0u);
  EXPECT_NE(check_up_text(found).find("Steps             1 to 40"), std::string::npos)
      << check_up_text(found);
}

TEST_F(CheckUps, WhatCannotBePlanned) {
  config_.device = "abacus";
  run_with(0.25f, "");
  const CheckUp found = check_up(folder_.path());
  EXPECT_EQ(found.diagnosis.condition, Condition::forward_overflow);
  EXPECT_TRUE(found.no_remedies.starts_with("[device] unknown device 'abacus'")) << found.no_remedies;
  EXPECT_NE(check_up_text(found).find("No remedies: [device]"), std::string::npos);
}

TEST_F(CheckUps, Folders) {
  EXPECT_EQ(refusal(), "[doctor] F holds no run: there is no F/config.toml");
  EXPECT_EQ(complaint_of([] { check_up(""); }), "[doctor] DIR is empty: name the folder of a run");
  put(folder_ / "config.toml", config_text(config_));
  EXPECT_EQ(refusal(), "[doctor] there is no F/ranges.bin: the run has not taken a step yet");
  config_.policy = "fp32";
  put(folder_ / "config.toml", config_text(config_));
  EXPECT_FALSE(check_up(folder_.path()).narrow);
  EXPECT_EQ(check_up_text(check_up(folder_.path())),
            "Healthy as far as formats go: no tensor of a step was narrow, so nothing was recorded.\n");
  // Formats are not everything.
  put(folder_ / "metrics.jsonl",
      "{\"event\":\"step\",\"step\":1,\"loss\":2}\n{\"event\":\"step\",\"step\":2,\"loss\":\"nan\"}\n"
      "{\"event\":\"step\",\"step\":3,\"loss\":\"inf\"}\n"
      "{\"event\":\"diverged\",\"since\":2,\"until\":3,\"why\":\"diverged: look there\"}\n");
  EXPECT_EQ(check_up_text(check_up(folder_.path())),
            "The loss of 2 of 3 steps was not finite, first at step 2; no tensor of a step was narrow, so "
            "formats are "
            "not why: look at the learning rate.\nDiverged: look there.\n");
  EXPECT_EQ(check_up(folder_.path(), 1).losses.not_finite, 0u);
  EXPECT_EQ(check_up(folder_.path(), 2).losses.diverged, "");
}

}  // namespace
}  // namespace ulp
