// Training on a device that is not the host against training on the CPU: the same kernels, so the
// same bits of state, range events and losses, however a step is judged, cut and planned; and the
// memory that was planned.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/classifier.h"
#include "tests/support/fake_device.h"
#include "tests/support/harness.h"
#include "tests/support/temp.h"
#include "ulp/backend/found_inf.h"
#include "ulp/base/error.h"
#include "ulp/lab/update_bench.h"
#include "ulp/run/checkpoint.h"
#include "ulp/run/scaling.h"
#include "ulp/runtime/init.h"

namespace ulp {
namespace {

using Judgement = ClassifierOptions::FusedOverflow;
using Known = ClassifierEngine::Known;

constexpr size_t kImage = 3 * 8 * 8;

struct Data {
  std::vector<float> images;
  std::vector<int32_t> labels;
  explicit Data(size_t count) : images(count * kImage), labels(count) {
    fill_initial(Init::normal(1), 9, 1, images);
    for (size_t i = 0; i < count; ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  }
  LabelledImages examples() const { return {images, labels}; }
};

ClassifierOptions options(const std::string& device, const std::string& rule = "extra:8:sr",
                          const std::string& weight = "bf16") {
  fake_device::add();
  ClassifierOptions made;
  made.device = device;
  made.model.name = "resnet8";
  made.model.width = 0.25;
  made.model.image = {3, 8, 8};
  made.model.batch = 8;
  made.optimizer.momentum = 0.9;
  made.optimizer.weight_decay = 0.01;
  made.precision.updates.rule = parse_update_rule(rule);
  made.precision.updates.weight = parse_weight_format(weight);
  made.seed = 5;
  return made;
}

std::map<std::string, std::vector<uint8_t>> state_of(Engine& engine) {
  std::map<std::string, std::vector<uint8_t>> bytes;
  for (const auto& [name, slot] : engine.state().slots()) {
    if (slot.kind != Kind::grad_sum) bytes[name] = slot.bytes();
  }
  return bytes;
}

void expect_planned(const ClassifierEngine& engine) {
  EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
}

struct Outcome {
  std::map<std::string, std::vector<uint8_t>> state;
  std::vector<double> losses;
  std::vector<uint64_t> correct;
  std::vector<bool> updated;
  std::vector<std::vector<EncodeStats>> stats;
  std::vector<std::vector<UpdateCounts>> updates;
  bool operator==(const Outcome&) const = default;
};

struct Course {
  std::vector<float> scales = {};  // of steps; none: no verdict
  Known known = Known::nothing;
  bool promotes = false;  // every tensor goes to its high format after the third step
  size_t launches = 0;    // that the first step took
};

StepState step_of(const ClassifierOptions& made, uint32_t step, uint64_t updates, float scale) {
  StepState state;
  state.seed = made.seed;
  state.step = step;
  state.loss_scale = scale;
  state.update = update_scalars(made.optimizer, updates, 0.05, 1 / scale);
  return state;
}

bool no_overflow(double loss, const Graph& graph, std::span<const EncodeStats> stats) {
  return !gradients_overflowed(loss, graph, stats);
}

// Six steps, the last of fewer examples, evaluation between them.
Outcome train(const ClassifierOptions& made, Course& run) {
  ClassifierEngine engine(made);
  const Data whole(8), rest(5);
  engine.plan_training(5);
  engine.plan_evaluation(8 / made.micro_batches);
  engine.allocate();
  EXPECT_EQ(engine.planned_bytes().total(), engine.planned_peak_bytes());
  Outcome outcome;
  uint64_t updates = 0;
  for (uint32_t step = 0; step < 6; ++step) {
    const float scale = run.scales.empty() ? 1 : run.scales[step];
    const StepState state = step_of(made, step, updates, scale);
    const Data& data = step == 5 ? rest : whole;
    const size_t before = fake_device::launches();
    const Classified result = engine.train(
        state, data.examples(), run.scales.empty() ? ClassifierEngine::Verdict() : no_overflow, run.known);
    if (step == 0) run.launches = fake_device::launches() - before;
    updates += result.updated ? 1 : 0;
    outcome.losses.push_back(result.loss);
    outcome.correct.push_back(result.correct);
    outcome.updated.push_back(result.updated);
    outcome.stats.emplace_back(engine.stats().begin(), engine.stats().end());
    outcome.updates.emplace_back(engine.updates().begin(), engine.updates().end());
    expect_planned(engine);
    if (step == 2 && run.promotes) {
      Assignment assignment = engine.assignment();
      for (const CountedTensor& tensor : engine.counted()) assignment.promote(tensor.name);
      engine.set_assignment(assignment);
      expect_planned(engine);
    }
    const Data test(static_cast<size_t>(8 / made.micro_batches));
    for (const Classified& tested :
         {engine.evaluate(state, test.examples()), engine.evaluate_fp32(state, test.examples())}) {
      outcome.losses.push_back(tested.loss);
      outcome.correct.push_back(tested.correct);
    }
  }
  outcome.state = state_of(engine);
  expect_planned(engine);
  return outcome;
}

// Returns the launches that a step took on the device.
size_t expect_same(ClassifierOptions made, Course run) {
  made.device = "cpu";
  const Outcome here = train(made, run);
  made.device = "fake";
  const Outcome there = train(made, run);
  EXPECT_TRUE(here == there);
  EXPECT_TRUE(here.state == there.state);
  EXPECT_EQ(here.losses, there.losses);
  EXPECT_EQ(here.updated, there.updated);
  EXPECT_TRUE(here.stats == there.stats);
  EXPECT_TRUE(here.updates == there.updates);
  return run.launches;
}

// fp16 gradients at a scale of 2^40 overflow: steps 1 and 4 are refused.
const std::vector<float> kOverflowing = {64, 0x1p40f, 64, 64, 0x1p40f, 128};

TEST(Device, ASteadyStepIsOneLaunch) {
  for (const double norm : {0.0, 0.05}) {
    ClassifierOptions made = options("cpu");
    made.clip_norm = norm;
    EXPECT_EQ(expect_same(made, {}), 1u);
    made.precision.policy = "uniform";
    EXPECT_EQ(expect_same(made, {std::vector<float>(6, 16.0f), Known::accepts}), 1u);
    EXPECT_EQ(expect_same(made, {std::vector<float>(6, 16.0f), Known::nothing}), 2u);
  }
}

TEST(Device, TheDeviceChecksAsTheVerdictDoes) {
  for (const double norm : {0.0, 0.05}) {
    for (const bool fused : {false, true}) {
      SCOPED_TRACE(fused);
      ClassifierOptions made = options("cpu");
      made.precision.policy = "amp:fp16";
      made.clip_norm = norm;
      made.fused_backward = fused;
      made.may_skip = [](auto&&...) { return true; };
      EXPECT_EQ(expect_same(made, {kOverflowing, Known::accepts_no_overflow}), 1u);
      EXPECT_EQ(expect_same(made, {kOverflowing, Known::nothing}), 2u);
      Course run{kOverflowing, Known::accepts_no_overflow};
      made.device = "fake";
      EXPECT_EQ(train(made, run).updated, (std::vector<bool>{true, false, true, true, false, true}));
    }
  }
}

TEST(Device, MicroBatchesGiveTheSameBits) {
  for (const bool fused : {false, true}) {
    ClassifierOptions made = options("cpu");
    made.precision.policy = "amp:fp16";
    made.micro_batches = 4;
    made.clip_norm = 0.05;
    made.fused_backward = fused;
    made.may_skip = [](auto&&...) { return true; };
    EXPECT_EQ(expect_same(made, {kOverflowing, Known::accepts_no_overflow}), 5u);
  }
}

TEST(Device, FusedBackwardGivesTheSameBits) {
  ClassifierOptions made = options("cpu", "kahan", "bf16");
  made.fused_backward = true;
  EXPECT_EQ(expect_same(made, {}), 1u);
  made.clip_norm = 0.05;
  EXPECT_EQ(expect_same(made, {}), 1u);
  made.clip_norm = 0;
  // Put back where the verdict is against the step.
  made.precision.policy = "amp:fp16";
  made.fused_overflow_of = Judgement::snapshot;
  made.may_skip = [](auto&&...) { return true; };
  EXPECT_EQ(expect_same(made, {kOverflowing, Known::accepts_no_overflow}), 1u);
}

TEST(Device, FormatsChangeWithTheSameBits) {
  for (const char* weight : {"fp32", "assigned"}) {
    for (const bool fused : {false, true}) {
      SCOPED_TRACE(weight);
      ClassifierOptions made =
          options("cpu", weight == std::string("fp32") ? "master" : "stochastic", weight);
      made.precision.policy = "size:0.7";
      made.fused_backward = fused;
      made.fused_overflow_of = Judgement::snapshot;
      made.may_skip = [](auto&&...) { return true; };
      expect_same(made, {std::vector<float>(6, 16.0f), Known::accepts_no_overflow, true});
    }
  }
}

TEST(Device, AVerdictThatIsNotWhatWasKnownIsAMistake) {
  const ClassifierOptions made = options("fake");
  ClassifierEngine engine(made);
  engine.allocate();
  const Data data(8);
  for (const Known known : {Known::accepts, Known::accepts_no_overflow}) {
    EXPECT_THROW(engine.train(
                     step_of(made, 0, 0, 1), data.examples(), [](auto&&...) { return false; }, known),
                 std::logic_error);
  }
}

TEST(Device, GradientsAreReadFromThere) {
  std::vector<std::vector<float>> gradients;
  for (const char* device : {"cpu", "fake"}) {
    ClassifierOptions made = options(device);
    made.precision.policy = "uniform";
    made.keep_gradients = true;
    ClassifierEngine engine(made);
    engine.allocate();
    const Data data(8);
    engine.train(step_of(made, 0, 0, 16), data.examples());
    gradients.push_back(engine.gradient("layer1.0.conv1.weight"));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// Images that lie on the device as bytes become the batches that the loader makes: cropped, mirrored
// and normalised with the same bits.
TEST(Device, BatchesOfResidentImagesAreTheLoaders) {
  fake_device::add();
  TaskOptions made;
  made.model = "lenet";
  made.data = "synthetic";
  made.image_shape = "3x20x20";
  made.batch = 16;
  made.subset = 100;
  made.padding = 3;
  made.mirror = true;
  made.seed = 11;
  std::vector<std::map<std::string, std::vector<uint8_t>>> states;
  std::vector<std::vector<double>> losses(2);
  for (const bool resident : {false, true}) {
    made.resident = resident;
    const std::unique_ptr<LearningTask> task = make_task(made);
    EngineOptions engine_options;
    engine_options.build = task->build();
    engine_options.batch = task->batch();
    engine_options.device = resident ? "fake" : "cpu";
    engine_options.precision.policy = "size:0.5";
    Engine engine(engine_options);
    plan_task(engine, *task);
    task->keep_data(engine);
    engine.allocate();
    const std::unique_ptr<BatchStream> batches = task->stream(Part::train), tests = task->stream(Part::test);
    for (uint32_t step = 0; step < 16; ++step) {
      StepState state;
      state.step = step;
      state.update = update_scalars(engine_options.optimizer, step, 0.05);
      losses[resident ? 1 : 0].push_back(engine.train(state, batches->next()).loss);
    }
    losses[resident ? 1 : 0].push_back(engine.evaluate({}, tests->next()).loss);
    EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
    states.push_back(state_of(engine));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_TRUE(states[0] == states[1]);
}

TEST(Device, ACheckpointFitsAnyDevice) {
  const TempFolder folder;
  const std::string file = folder / "state.safetensors";
  const Data data(8);
  const auto step = [&](ClassifierEngine& engine, uint32_t number) {
    return engine.train(step_of(options("cpu"), number, number, 1), data.examples()).loss;
  };
  const auto load = [&](ClassifierEngine& engine) {
    load_run_checkpoint(file, "a run", "acc", [&](const StepProgress&) -> State& { return engine.state(); });
  };
  ClassifierEngine here(options("cpu")), there(options("fake")), also(options("fake"));
  for (ClassifierEngine* engine : {&here, &there, &also}) engine->allocate();
  step(there, 0);
  save_run_checkpoint(file, "a run", there.state(), {});
  load(here);
  load(also);
  EXPECT_TRUE(state_of(here) == state_of(there));
  EXPECT_EQ(step(there, 1), step(here, 1));
  step(also, 1);
  EXPECT_TRUE(state_of(here) == state_of(there));
  EXPECT_TRUE(state_of(also) == state_of(there));
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string mebi(size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// One line with what is needed and what there is, before anything is taken.
TEST(Device, WhatDoesNotFitIsSaidBeforehand) {
  ClassifierOptions made = options("fake");
  made.model.width = 4;
  ClassifierEngine engine(made);
  const size_t before = engine.memory().in_use(), needed = engine.planned_peak_bytes() - before,
               free = needed / 2;
  {
    const fake_device::Shortage shortage(free);
    const std::string error = error_of([&] { engine.allocate(); });
    EXPECT_NE(error.find(mebi(needed) + " are needed on the device and " + mebi(free) + " are free"),
              error.npos)
        << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
    EXPECT_EQ(engine.memory().in_use(), before);
  }
  const fake_device::Shortage enough(needed);
  engine.allocate();
  const Data data(8);
  engine.train(step_of(made, 0, 0, 1), data.examples());
  expect_planned(engine);
}

// A device that has less than it says, or does not say: the request that fails tells of both.
TEST(Device, ARequestThatFailsSaysHowMuchThereIs) {
  ClassifierEngine engine(options("fake"));
  const fake_device::Shortage shortage(100000, false);
  const std::string error = error_of([&] { engine.allocate(); });
  EXPECT_NE(error.find("bytes are needed beside the "), error.npos) << error;
  EXPECT_NE(error.find("in use, and there are not so many ("), error.npos) << error;
  EXPECT_NE(error.find("bytes more are needed, "), error.npos) << error;
  EXPECT_EQ(error.find('\n'), error.npos) << error;
}

// Updates alone, which `ulp bench update` times.
TEST(Device, UpdatesThatDoNotFitAreRefused) {
  fake_device::add();
  UpdateBenchOptions wanted;
  wanted.config.device = "fake";
  wanted.config.threads = 1;  // each has a little workspace of its own
  wanted.elements = 1 << 20;
  wanted.steps = 1;
  const fake_device::Shortage shortage(size_t{4} << 20);
  const std::string error = error_of([&] { bench_update(wanted); });
  EXPECT_NE(error.find("12.0 MiB are needed on the device and 4.0 MiB are free"), error.npos) << error;
}

}  // namespace
}  // namespace ulp
