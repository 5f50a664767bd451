// Whole runs on a device that is not the host against runs on the CPU; and that what holds backends
// to the reference, and plans to their nodes, works there too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/conformance/first_step.h"
#include "tests/support/fake_device.h"
#include "tests/support/harness.h"
#include "tests/support/temp.h"
#include "ulp/io/safetensors.h"
#include "ulp/run/sensitivity.h"
#include "ulp/run/setup.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

std::map<std::string, std::vector<uint8_t>> tensors_in(const std::string& file) {
  std::map<std::string, std::vector<uint8_t>> found;
  const TensorFile read(file);
  for (const StoredTensor& tensor : read.tensors())
    found[tensor.name].assign(tensor.bytes.begin(), tensor.bytes.end());
  return found;
}

// Whole runs: a measured or dynamic loss scale, promotion, evaluation, stopped and resumed.
TEST(Device, RunsGiveTheSameBits) {
  fake_device::add();
  for (const char* scale : {"auto", "dynamic:16777216", "none"}) {
    SCOPED_TRACE(scale);
    const TempFolder folder;
    RunConfig config;
    config.model = "lenet";
    config.data = "synthetic";
    config.image_shape = "1x28x28";
    config.subset = 44;
    config.batch = 8;
    config.steps = 9;
    config.epochs = 0;
    config.threads = 1;
    config.policy = "size:0.9";
    config.promote = "0.001";
    config.lo = "fp(4,3,8)";  // up to 1.875: much is promoted
    config.loss_scale = scale;
    struct Stops : Observer {
      std::atomic<bool> stop = false;
      std::vector<double> losses;
      std::vector<bool> skipped;
      uint64_t at = 0;
      size_t promoted = 0;
      void on_step(const StepReport& report) override {
        losses.push_back(report.loss);
        skipped.push_back(report.skipped);
        if (report.step == at) stop = true;
      }
      void on_note(const std::string& text) override {
        promoted += text.find("promoted") != text.npos ? 1 : 0;
      }
    };
    std::map<std::string, Stops> seen;
    for (const char* device : {"cpu", "fake"}) {
      config.device = device;
      config.out = folder / device;
      Stops& observer = seen[device];
      observer.at = 4;
      EXPECT_EQ(train(config, false, observer, observer.stop), ulp::Outcome::interrupted);
      observer.at = 0;
      observer.stop = false;
      EXPECT_EQ(train(config, true, observer, observer.stop), ulp::Outcome::finished);
    }
    EXPECT_EQ(seen["cpu"].losses, seen["fake"].losses);
    EXPECT_EQ(seen["cpu"].skipped, seen["fake"].skipped);
    EXPECT_EQ(seen["cpu"].promoted, seen["fake"].promoted);
    EXPECT_GT(seen["fake"].promoted, 0u);
    // The largest scale is too large.
    EXPECT_EQ(seen["fake"].skipped.front(), scale == std::string_view("dynamic:16777216"));
    EXPECT_TRUE(tensors_in(folder / "cpu/last.safetensors") == tensors_in(folder / "fake/last.safetensors"));
  }
}

TEST(Device, SensitivitiesAreTheSame) {
  fake_device::add();
  std::vector<std::vector<double>> errors;
  for (const char* device : {"cpu", "fake"}) {
    RunConfig config;
    config.device = device;
    config.model = "lenet";
    config.data = "synthetic";
    config.image_shape = "1x28x28";
    config.subset = 32;
    config.batch = 8;
    config.steps = 20;
    config.epochs = 0;
    const std::unique_ptr<LearningTask> task = make_task(task_options(config));
    errors.push_back(measure_sensitivities(config, *task, {.batches = 1, .warmup = 2}).errors);
  }
  EXPECT_EQ(errors[0], errors[1]);
}

// What holds other backends to the reference and plans to their nodes works there too.
TEST(Device, HarnessesWorkThere) {
  ModelRequest request;
  request.name = "resnet8";
  request.width = 0.25;
  request.batch = 3;
  harness::TrainingGraph made;
  made.net = build_classifier(request, Mode::training);
  harness::make_step(made, 7, 2, 0.1);
  const std::vector<TensorFormat> formats = harness::choose_formats(
      made.net.graph,
      [](const TensorInfo& tensor) { return tensor.number % 2 == 0 ? "fp(4,3,4)" : "s2fp8"; });
  PlanOptions here = harness::cpu_plan(), there = here;
  there.backend = &fake_device::backend();
  const harness::Trained expected = run_apart(made, formats, here);
  const harness::Trained nodes = run_apart(made, formats, there), plan = run_plan(made, formats, there, 0xFF);
  expect_same_bits(expected, nodes, "nodes");
  expect_same_bits(expected, plan, "plan");
  EXPECT_TRUE(expected.stats == nodes.stats);
  EXPECT_GT(expect_same_events(made.net.graph, expected, plan), 0u);
}

TEST(Device, KernelsAreHeldToTheReferenceThere) {
  const auto schemes = conformance::schemes();
  const auto scheme = std::find_if(schemes.begin(), schemes.end(),
                                   [](const conformance::Scheme& one) { return one.required; });
  ASSERT_NE(scheme, schemes.end());
  for (const conformance::Case& one : conformance::cases()) {
    if (!one.large) check(one, *scheme, fake_device::backend());
  }
}

TEST(Device, AFirstStepIsHeldToTheReferenceThere) {
  RunConfig config;
  config.model = "resnet8";
  config.width = 0.25;
  config.batch = 2;
  config.data = "synthetic";
  config.image_shape = "1x8x8";
  config.subset = 16;
  config.policy = "size:0.5";
  config.loss_scale = "auto";
  const conformance::StepReport report = conformance::check_first_step(config, fake_device::backend());
  EXPECT_GT(report.nodes, 100u);
  EXPECT_GT(report.total().elements, 10000u);
}

}  // namespace
}  // namespace ulp
