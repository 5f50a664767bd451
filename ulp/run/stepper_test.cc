#include "ulp/run/stepper.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/run/setup.h"

namespace ulp {
namespace {

using Options = std::map<std::string, std::string>;

// A run whose first step meets weights that were spoilt.
class FirstNotFinite {
 public:
  explicit FirstNotFinite(const Options& options) {
    config_.data = "synthetic";
    config_.model = "mlp";
    config_.width = 0.1;
    config_.batch = 8;
    config_.subset = 16;
    for (const auto& [name, value] : options) find_config_field(name).set(config_, value);
    task_ = make_task(task_options(config_));
    stream_ = task_->stream(Part::train);
    engine_ = std::make_unique<Engine>(engine_options(config_, *task_));
    plan_task(*engine_, *task_);
    engine_->allocate();
  }

  // All of a weight, or its first number alone.
  void spoil(const std::string& weight, float value, bool all) {
    std::vector<float> values = engine_->state().find(weight).values();
    if (all) values.assign(values.size(), value);
    values[0] = value;
    engine_->state().assign(weight, values, 0, 0);
  }

  // What is said of it; "" if the loss is finite.
  std::string found() {
    Stepper stepper(config_, *engine_, stream_->batches());
    StepProgress progress;
    const FeedBatch& batch = stream_->next();
    if (std::isfinite(stepper.train(batch, 0.1, progress, {}, true).loss)) return "";
    const auto before = bytes();
    const std::string text = stepper.first_not_finite(batch);
    EXPECT_EQ(bytes(), before) << "looking changes nothing";
    return text;
  }

 private:
  std::map<std::string, std::vector<uint8_t>> bytes() {
    std::map<std::string, std::vector<uint8_t>> all;
    for (const auto& [name, slot] : engine_->state().slots()) {
      if (slot.kind != Kind::grad_sum) all[name] = slot.bytes();
    }
    return all;
  }

  RunConfig config_;
  std::unique_ptr<LearningTask> task_;
  std::unique_ptr<BatchStream> stream_;
  std::unique_ptr<Engine> engine_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Stepper, NamesTheFirstTensorThatIsNotFinite) {
  for (const char* micro : {"1", "2"}) {
    for (const char* device : {"cpu", "reference"}) {
      const Options options = {{"device", device}, {"grad_accum", micro}};
      EXPECT_EQ(FirstNotFinite(options).found(), "");
      FirstNotFinite one(options);
      one.spoil("fc2.weight", kNan, false);
      EXPECT_TRUE(one.found().starts_with(
          "the first tensor that was not finite is fc2.weight, 1 NaN and 0 infinite"));
      // Finite themselves, but not what is summed with them.
      for (const std::string layer : {"fc1", "fc2", "fc3"}) {
        FirstNotFinite large(options);
        large.spoil(layer + ".weight", 3e38f, true);
        const std::string text = large.found();
        EXPECT_TRUE(text.starts_with("the first tensor that was not finite is " + layer + ".out, ")) << text;
      }
    }
  }
}

TEST(Stepper, NamesItOfASkippedStep) {
  FirstNotFinite skipped(
      Options{{"loss_scale", "dynamic"}, {"fused_backward", "true"}, {"fused_overflow", "snapshot"}});
  skipped.spoil("fc1.weight", 3e38f, true);
  EXPECT_TRUE(skipped.found().starts_with("the first tensor that was not finite is fc1.out, "));
}

TEST(Stepper, SaysWhatItCannotKnow) {
  // Weights are updated before the loss has been looked at.
  FirstNotFinite wide(Options{{"fused_backward", "true"}});
  wide.spoil("fc2.weight", kNan, false);
  EXPECT_TRUE(wide.found().starts_with("which tensor was first is not known: "));
  FirstNotFinite narrow(Options{{"fused_backward", "true"}, {"formats", "fc3.out=bf16 fc2.out=bf16"}});
  narrow.spoil("fc2.weight", kNan, false);
  EXPECT_TRUE(narrow.found().starts_with("of the narrow tensors fc2.out was the first that was not finite"));
}

}  // namespace
}  // namespace ulp
