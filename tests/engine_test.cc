
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/classifier.h"
#include "tests/support/temp.h"
#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"
#include "ulp/run/checkpoint.h"
#include "ulp/runtime/init.h"

namespace ulp {
namespace {

ClassifierOptions options(const std::string& model, int64_t batch, int64_t micro_batches = 1) {
  ClassifierOptions made;
  made.model.name = model;
  made.model.width = 0.25;
  made.model.batch = batch;
  made.optimizer.momentum = 0.9;
  made.micro_batches = micro_batches;
  made.seed = 3;
  return made;
}

struct Data {
  std::vector<float> images;
  std::vector<int32_t> labels;
  explicit Data(size_t count) : images(count * 3 * 32 * 32), labels(count) {
    fill_initial(Init::normal(1), 9, 1, images);
    for (size_t i = 0; i < count; ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  }
  LabelledImages examples() const { return {images, labels}; }
};

StepState step_state(const ClassifierOptions& made, uint64_t step) {
  StepState state;
  state.seed = made.seed;
  state.step = static_cast<uint32_t>(step);
  state.update = update_scalars(made.optimizer, step, 0.05);
  return state;
}

std::vector<float> weights(ClassifierEngine& engine, const std::string& name) {
  return engine.state().find(name).values();
}

// Before the first step too, weights that are rounded at random are rounded by words of their own
// and of the seed: which elements went up is then no more alike than chance has it. With the same
// words two thirds would agree.
TEST(Engine, FirstWeightsHaveRandomWordsOfTheirOwn) {
  const auto rounded_up = [](uint64_t seed, const char* name) {
    ClassifierOptions made = options("resnet8", 2);
    made.model.width = 1;
    made.seed = seed;
    made.precision.updates.rule = parse_update_rule("extra:8:sr");
    made.precision.updates.weight = parse_weight_format("bf16");
    ClassifierEngine engine(made);
    engine.allocate();
    const StateSlot& slot = engine.state().find(name);
    const std::vector<float> exact = slot.values();
    std::vector<float> high(exact.size());
    decode(parse_storage("bf16"), SlotView(slot).codes(), {}, high);
    std::vector<bool> up;
    for (size_t i = 0; i < exact.size(); ++i) up.push_back(std::abs(high[i]) > std::abs(exact[i]));
    return up;
  };
  const auto agreement = [](const std::vector<bool>& a, const std::vector<bool>& b) {
    double same = 0;
    for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
    return same / static_cast<double>(a.size());
  };
  const std::vector<bool> first = rounded_up(3, "layer1.0.conv1.weight");
  ASSERT_EQ(first.size(), 2304u);  // a standard deviation of agreement is 0.0104
  EXPECT_NEAR(agreement(first, rounded_up(3, "layer1.0.conv2.weight")), 0.5, 0.06);
  EXPECT_NEAR(agreement(first, rounded_up(4, "layer1.0.conv1.weight")), 0.5, 0.06);
}

TEST(Engine, TakesTheMemoryThatWasPlanned) {
  for (const char* model : {"resnet8", "mobilenetv2", "shufflenetv2", "squeezenet", "lenet", "mlp"}) {
    const ClassifierOptions made = options(model, 8);
    ClassifierEngine engine(made);
    engine.plan_training(3);
    engine.plan_evaluation(8);
    engine.plan_evaluation(2);
    EXPECT_EQ(engine.memory().peak(), 0u);
    engine.allocate();
    const Data data(8);
    engine.train(step_state(made, 0), data.examples());
    engine.evaluate(step_state(made, 1), data.examples());
    EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes()) << model;
    EXPECT_EQ(engine.planned_bytes().total(), engine.planned_peak_bytes()) << model;
  }
}

// Without batch norm the mean gradient is the same, however the batch is cut.
TEST(Engine, MicroBatchesAddUpToTheBatch) {
  const Data data(10);
  const ClassifierOptions whole = options("mlp", 12), parts = options("mlp", 12, 3);
  ClassifierEngine one(whole), three(parts);
  for (ClassifierEngine* engine : {&one, &three}) {
    // A last batch that the micro-batches do not divide: 4, 4 and 2.
    engine->plan_training(10);
    engine->allocate();
  }
  for (uint64_t step = 0; step < 3; ++step) {
    const Classified a = one.train(step_state(whole, step), data.examples());
    const Classified b = three.train(step_state(parts, step), data.examples());
    EXPECT_NEAR(a.loss, b.loss, 1e-4 * a.loss);
    EXPECT_EQ(a.correct, b.correct);
  }
  const std::vector<float> a = weights(one, "fc1.weight"), b = weights(three, "fc1.weight");
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    norm += std::pow(a[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 1e-5);
  EXPECT_GT(difference, 0) << "the sums were added up in the same order: were there micro-batches at all?";
}

TEST(Engine, LearnsWhatItSeesAgainAndAgain) {
  const Data data(16);
  const ClassifierOptions made = options("resnet8", 16);
  ClassifierEngine engine(made);
  engine.allocate();
  double first = 0, last = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    last = engine.train(step_state(made, step), data.examples()).loss / 16;
    if (step == 0) first = last;
  }
  EXPECT_GT(first, 2);
  EXPECT_LT(last, 0.2);
}

TEST(Engine, RefusesWhatDoesNotGoTogether) {
  EXPECT_THROW(ClassifierEngine(options("resnet8", 0)), Error);
  EXPECT_THROW(ClassifierEngine(options("resnet8", 10, 3)), Error);
  EXPECT_THROW(ClassifierEngine(options("nonet", 10)), Error);
  ClassifierOptions device = options("resnet8", 4);
  device.device = "abacus";
  EXPECT_THROW(ClassifierEngine{device}, Error);
  ClassifierOptions kernels = options("resnet8", 4);
  kernels.kernels = "conv2d=magic";
  EXPECT_THROW(ClassifierEngine{kernels}, Error);
}

TEST(Engine, ForcedKernelsAreUsed) {
  ClassifierOptions made = options("lenet", 2);
  made.kernels = "*=reference";
  const ClassifierEngine engine(made);
  for (const PlanStep& step : engine.training_plan().steps()) EXPECT_EQ(step.kernel->name, "reference");
  made.kernels = "conv2d=reference";
  const ClassifierEngine asked(made);
  for (const PlanStep& step : asked.training_plan().steps()) {
    const std::string_view op = asked.training_plan().graph()[step.roots[0]].op->name;
    if (op == "conv2d") {
      EXPECT_EQ(step.kernel->name, "reference");
    } else if (op == "relu") {
      EXPECT_EQ(step.kernel->name, "fused");
    }
  }
}

ClassifierOptions narrow(const std::string& model, int64_t batch, const std::string& policy) {
  ClassifierOptions made = options(model, batch);
  made.precision.policy = policy;
  return made;
}

// All that are low and forward, every other one promoted.
Assignment half_promoted(const ClassifierEngine& engine) {
  Assignment assignment = engine.assignment();
  bool odd = false;
  for (const CountedTensor& tensor : engine.counted()) {
    if (tensor.kind != Kind::activation && tensor.kind != Kind::weight) continue;
    if (assignment.is_low(tensor.name) && (odd = !odd)) assignment.promote(tensor.name);
  }
  return assignment;
}

void copy_state(const State& from, State& to) {
  for (const Kind kind : {Kind::weight, Kind::statistic, Kind::optimizer}) to.restore(from.copy(kind));
}

TEST(Engine, AfterAChangeOfFormatsIsAsIfItHadHadThemAllAlong) {
  const Data data(8);
  for (const char* model : {"resnet8", "shufflenetv2", "squeezenet"}) {
    SCOPED_TRACE(model);
    const ClassifierOptions made = narrow(model, 8, "size:1");
    ClassifierEngine engine(made);
    engine.plan_evaluation(8);
    engine.allocate();
    engine.train(step_state(made, 0), data.examples());
    const Assignment promoted = half_promoted(engine);
    ASSERT_NE(promoted.storage, engine.assignment().storage);
    const size_t before = engine.planned_peak_bytes();
    engine.set_assignment(promoted);
    EXPECT_GT(engine.planned_peak_bytes(), before);
    EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
    EXPECT_EQ(engine.memory().in_use(), engine.planned_peak_bytes());

    ClassifierEngine other(made);
    other.plan_evaluation(8);
    other.allocate();
    other.set_assignment(promoted);
    copy_state(engine.state(), other.state());
    for (uint64_t step = 1; step < 3; ++step) {
      EXPECT_EQ(engine.train(step_state(made, step), data.examples()).loss,
                other.train(step_state(made, step), data.examples()).loss);
    }
    for (const auto& [name, slot] : engine.state().slots()) {
      EXPECT_EQ(slot.values(), other.state().find(name).values()) << name;
    }
    EXPECT_EQ(engine.evaluate(step_state(made, 3), data.examples()).loss,
              other.evaluate(step_state(made, 3), data.examples()).loss);
    // And back, which a run never does: the arena stays, and the peak is what it was.
    engine.set_assignment(engine.first_assignment());
    EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
  }
}

TEST(Engine, StoredWeightsFollowTheirFormat) {
  const Data data(8);
  ClassifierOptions made = narrow("resnet8", 8, "size:1");
  made.precision.updates.rule = parse_update_rule("plain");
  made.precision.updates.weight = parse_weight_format("assigned");
  ClassifierEngine engine(made);
  engine.plan_evaluation(8);
  engine.allocate();
  const std::string name = "conv1.weight";
  const Storage low = engine.assignment().storage_of(name), high = engine.assignment().high_of(name);
  EXPECT_EQ(engine.state().find(name).storage, low);
  engine.train(step_state(made, 0), data.examples());
  const std::vector<float> values = weights(engine, name);
  Assignment assignment = engine.assignment();
  assignment.promote(name);
  engine.set_assignment(assignment);
  EXPECT_EQ(engine.state().find(name).storage, high);
  EXPECT_EQ(weights(engine, name), values);  // the high format holds all that the low one does
  EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
  EXPECT_TRUE(std::isfinite(engine.train(step_state(made, 1), data.examples()).loss));
  EXPECT_NE(weights(engine, name), values);
}

TEST(Engine, AWeightThatIsStoredNarrowReportsItsUpdate) {
  const Data data(8);
  ClassifierOptions made = narrow("resnet8", 8, "size:1");
  made.precision.updates.rule = parse_update_rule("plain");
  made.precision.updates.weight = parse_weight_format("assigned");
  made.precision.overrides = parse_overrides("layer2.0.conv1.weight=fp(4,3,12)");
  ClassifierEngine engine(made);
  engine.allocate();
  engine.train(step_state(made, 0), data.examples());
  const auto at = static_cast<size_t>(engine.graph().find("layer2.0.conv1.weight").index);
  EXPECT_GT(engine.stats()[at].overflow, 0u);
  EXPECT_LE(engine.stats()[at].overflow, engine.elements()[at]);
}

TEST(Engine, PeakKeepsToItsLimitWithFormatsOfSingleTensors) {
  ClassifierOptions made = narrow("resnet8", 32, "size:1");
  const size_t least = ClassifierEngine(made).planned_peak_bytes();
  made.precision.policy = "peak:" + std::to_string(least * 5 / 4);
  made.precision.overrides = parse_overrides("layer3.*=fp32");
  EXPECT_LE(ClassifierEngine(made).planned_peak_bytes(), least * 5 / 4);
  made.precision.overrides = parse_overrides("layer*=fp32");
  EXPECT_THROW(ClassifierEngine{made}, Error);
}

TEST(Engine, NamedWeightsAreStoredSo) {
  const Data data(8);
  ClassifierOptions made = narrow("lenet", 8, "fp32");
  made.precision.updates.rule = parse_update_rule("plain");
  made.precision.updates.weight = parse_weight_format("bf16");
  ClassifierEngine engine(made);
  engine.allocate();
  for (const auto& [name, slot] : engine.state().slots()) {
    EXPECT_EQ(slot.storage, parse_storage(slot.kind == Kind::weight ? "bf16" : "fp32")) << name;
  }
  EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
  // Only what adapts to whole tensors cannot be updated number by number.
  made.precision.updates.weight.format = parse_storage("s2fp8");
  EXPECT_THROW(ClassifierEngine{made}, Error);
}

TEST(Engine, EvaluatesInFp32AsAnEngineInFp32Does) {
  const Data data(8);
  for (const char* model : {"resnet8", "mobilenetv2"}) {
    const ClassifierOptions made = narrow(model, 8, "size:1"), wide = narrow(model, 8, "fp32");
    ClassifierEngine engine(made), fp32(wide);
    for (ClassifierEngine* one : {&engine, &fp32}) {
      one->plan_evaluation(8);
      one->allocate();
    }
    for (uint64_t step = 0; step < 2; ++step) engine.train(step_state(made, step), data.examples());
    copy_state(engine.state(), fp32.state());
    EXPECT_FALSE(engine.computes_in_fp32());
    EXPECT_TRUE(fp32.computes_in_fp32());
    const Classified own = engine.evaluate(step_state(made, 2), data.examples()),
                     same = engine.evaluate_fp32(step_state(made, 2), data.examples()),
                     expected = fp32.evaluate(step_state(wide, 2), data.examples());
    EXPECT_NE(own.loss, expected.loss);
    // In pieces oneDNN may add up in another order.
    EXPECT_NEAR(same.loss, expected.loss, 1e-5 * expected.loss);
    EXPECT_EQ(same.correct, expected.correct);
    EXPECT_EQ(engine.memory().peak(), engine.planned_peak_bytes());
  }
}

TEST(Engine, EvaluatesInFp32WhateverItsSumsAre) {
  const Data data(8);
  ClassifierOptions made = narrow("resnet8", 8, "fp32");
  ClassifierEngine fp32(made);
  made.compute.accumulator = parse_format("fp(5,2,0)");
  ClassifierEngine engine(made);
  for (ClassifierEngine* one : {&engine, &fp32}) {
    one->plan_evaluation(8);
    one->allocate();
  }
  EXPECT_FALSE(engine.computes_in_fp32());
  const double expected = fp32.evaluate(step_state(made, 0), data.examples()).loss;
  EXPECT_NE(engine.evaluate(step_state(made, 0), data.examples()).loss, expected);
  EXPECT_NEAR(engine.evaluate_fp32(step_state(made, 0), data.examples()).loss, expected, 1e-5 * expected);
}

TEST(Engine, AStepThatIsSkippedReportsTheFirstWeights) {
  const Data data(8);
  ClassifierOptions made = narrow("resnet8", 8, "size:1");
  made.precision.updates.rule = parse_update_rule("plain");
  made.precision.updates.weight = parse_weight_format("assigned");
  made.precision.overrides = parse_overrides("layer2.0.conv1.weight=fp(4,3,12)");
  ClassifierEngine engine(made);
  engine.allocate();
  engine.train(step_state(made, 0), data.examples(), [](auto&&...) { return false; });
  EXPECT_GT(engine.stats()[static_cast<size_t>(engine.graph().find("layer2.0.conv1.weight").index)].overflow,
            0u);
}

TEST(Engine, CountsElementsOverMicroBatches) {
  const Data data(12);
  std::vector<uint64_t> overflowed;
  for (const int64_t micro_batches : {1, 2, 4}) {
    ClassifierOptions made = narrow("resnet8", 8, "size:1");
    // Where much of a weight overflows.
    made.precision.overrides = parse_overrides("layer2.0.conv1.weight=fp(4,3,12)");
    made.micro_batches = micro_batches;
    made.keep_gradients = true;
    ClassifierEngine engine(made);
    engine.plan_training(6);
    engine.allocate();
    const LabelledImages six{std::span(data.images).first(size_t{6} * 3 * 32 * 32),
                             std::span(data.labels).first(6)};
    engine.train(step_state(made, 0), six, [](auto&&...) { return false; });
    for (const CountedTensor& tensor : engine.counted()) {
      const TensorId id = engine.graph().find(tensor.name);
      if (!id) continue;
      const bool forward = tensor.kind == Kind::activation || tensor.kind == Kind::activation_grad;
      EXPECT_EQ(engine.elements()[static_cast<size_t>(id.index)],
                forward ? tensor.elements / 8 * 6 : tensor.elements)
          << tensor.name << " in " << micro_batches;
      const EncodeStats& stats = engine.stats()[static_cast<size_t>(id.index)];
      EXPECT_LE(stats.overflow + stats.underflow, engine.elements()[static_cast<size_t>(id.index)]);
      if (tensor.name == "layer2.0.conv1.weight") overflowed.push_back(stats.overflow);
    }
    const std::vector<float> gradient = engine.gradient("conv1.weight");
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float value) { return value != 0; }));
  }
  EXPECT_GT(overflowed[0], 0u);
  // A weight is one tensor, however often it is read.
  EXPECT_EQ(overflowed, std::vector<uint64_t>(3, overflowed[0]));
}

class CheckpointTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  static std::map<std::string, std::vector<float>> all(ClassifierEngine& engine) {
    std::map<std::string, std::vector<float>> values;
    for (const auto& [name, slot] : engine.state().slots()) values[name] = slot.values();
    return values;
  }
  static RunProgress load(const std::string& file, const std::string& run, ClassifierEngine& engine) {
    return load_run_checkpoint(file, run, "acc",
                               [&](const StepProgress&) -> State& { return engine.state(); });
  }
  TempFolder folder_;
};

TEST_F(CheckpointTest, GivesBackEveryBit) {
  const Data data(4);
  const ClassifierOptions made = options("resnet8", 4);
  ClassifierEngine engine(made);
  engine.allocate();
  engine.train(step_state(made, 0), data.examples());
  RunProgress progress;
  progress.step = 17;
  progress.updates = 16;
  progress.epochs_done = 2;
  progress.epoch_loss = 0.1;
  progress.epoch_weight = 9;
  progress.epoch_metrics = {{"correct", "5"}, {"examples", "9"}};
  progress.best = 1.0 / 3;
  progress.last = 0.25;
  progress.promoted = {"conv1.out", "fc.weight"};
  save_run_checkpoint(path("a"), "m", engine.state(), progress);
  ClassifierOptions other_seed = made;
  other_seed.seed = 4;
  ClassifierEngine other(other_seed);
  other.allocate();
  EXPECT_NE(all(engine), all(other));
  EXPECT_EQ(load(path("a"), "m", other), progress);
  EXPECT_EQ(all(engine), all(other));
}

TEST_F(CheckpointTest, OfAnotherModelChangesNothing) {
  ClassifierEngine engine(options("resnet8", 4)), lenet(options("lenet", 4));
  engine.allocate();
  lenet.allocate();
  save_run_checkpoint(path("a"), "m", engine.state(), {});
  const auto before = all(lenet);
  EXPECT_THROW(load(path("a"), "m", lenet), Error);
  EXPECT_THROW(load(path("a"), "n", engine), Error);
  EXPECT_THROW(load(path("none"), "m", engine), Error);
  save_tensors(path("foreign"), {}, {});
  EXPECT_THROW(load(path("foreign"), "m", engine), Error);
  EXPECT_EQ(all(lenet), before);
}

}  // namespace
}  // namespace ulp
