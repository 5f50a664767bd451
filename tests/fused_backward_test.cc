// Fused backward against the same run unfused: every bit of the state, for every optimizer and
// rule, where updates wait for nothing, for a norm, for a verdict, and for several micro-batches.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/classifier.h"
#include "tests/support/optimizers.h"
#include "ulp/backend/found_inf.h"
#include "ulp/base/error.h"
#include "ulp/run/scaling.h"
#include "ulp/runtime/init.h"

namespace ulp {
namespace {

using OverflowCheck = ClassifierOptions::FusedOverflow;

struct Data {
  std::vector<float> images;
  std::vector<int32_t> labels;
  explicit Data(size_t count) : images(count * 3 * 8 * 8), labels(count) {
    fill_initial(Init::normal(1), 9, 1, images);
    for (size_t i = 0; i < count; ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  }
};

ClassifierOptions options(const std::string& rule, const std::string& weight, OptimizerKind kind) {
  ClassifierOptions made;
  made.model.name = "resnet8";
  made.model.width = 0.25;
  made.model.image = {3, 8, 8};
  made.model.batch = 8;
  made.optimizer.kind = kind;
  made.optimizer.lr = 0.05;
  made.optimizer.momentum = optimizer_traits(kind).momentum;
  made.optimizer.weight_decay = 0.01;
  made.precision.updates.rule = parse_update_rule(rule);
  made.precision.updates.weight = parse_weight_format(weight);
  made.seed = 5;
  return made;
}

struct Outcome {
  std::map<std::string, std::vector<uint8_t>> state;
  std::vector<bool> updated;
  std::vector<UpdateCounts> updates;
  std::vector<std::map<std::string, EncodeStats>> events;  // by step and tensor
  size_t peak = 0, planned = 0;
  bool operator==(const Outcome& other) const {
    return state == other.state && updated == other.updated && updates == other.updates &&
           events == other.events;
  }
};

// Six steps, the last of fewer examples. With `scales`, the loss scale of each step: too large a
// one overflows, and the step is refused.
Outcome train(const ClassifierOptions& made, const std::vector<float>& scales = {}, double clip_value = 0) {
  ClassifierEngine engine(made);
  const Data whole(8), rest(5);
  engine.plan_training(5);
  engine.allocate();
  Outcome outcome;
  uint64_t updates = 0;
  for (uint32_t step = 0; step < 6; ++step) {
    const float scale = scales.empty() ? 1 : scales[step];
    StepState state;
    state.seed = made.seed;
    state.step = step;
    state.loss_scale = scale;
    state.update = update_scalars(made.optimizer, updates, 0.05, 1 / scale,
                                  clip_value > 0 ? clip_value : std::numeric_limits<double>::infinity());
    ClassifierEngine::Verdict verdict;
    if (!scales.empty()) {
      verdict = [](double loss, const Graph& graph, std::span<const EncodeStats> stats) {
        return !gradients_overflowed(loss, graph, stats);
      };
    }
    const Data& data = step == 5 ? rest : whole;
    const bool updated = engine.train(state, {data.images, data.labels}, verdict).updated;
    updates += updated ? 1 : 0;
    outcome.updated.push_back(updated);
    UpdateCounts counts;
    for (const UpdateCounts& c : engine.updates()) counts.merge(c);
    outcome.updates.push_back(counts);
    // What is made again reports nothing of its own.
    std::map<std::string, EncodeStats>& events = outcome.events.emplace_back();
    for (size_t i = 0; i < engine.stats().size(); ++i) {
      const TensorInfo& tensor = engine.graph().tensors()[i];
      if (!tensor.twin && tensor.kind != Kind::optimizer) events[tensor.name] = engine.stats()[i];
    }
  }
  for (const auto& [name, slot] : engine.state().slots()) {
    if (slot.kind == Kind::grad_sum) continue;
    std::vector<uint8_t>& bytes = outcome.state[name];
    const SlotView view(slot);
    bytes.assign(view.codes().begin(), view.codes().end());
    const auto side = view.side();
    const auto* first = reinterpret_cast<const uint8_t*>(side.data());
    bytes.insert(bytes.end(), first, first + side.size_bytes());
  }
  outcome.peak = engine.memory().peak();
  outcome.planned = engine.planned_peak_bytes();
  EXPECT_EQ(outcome.peak, outcome.planned);
  return outcome;
}

ClassifierOptions fused(ClassifierOptions made, OverflowCheck overflow_check = OverflowCheck::twice) {
  made.fused_backward = true;
  made.fused_overflow_of = overflow_check;
  return made;
}

struct Rule {
  const char *rule, *weight;
};
constexpr Rule kRules[] = {{"master", "fp32"},  {"plain", "bf16"},     {"stochastic", "bf16"},
                           {"kahan", "bf16"},   {"kahan", "fp16"},     {"stochastic+kahan", "bf16"},
                           {"extra:8", "bf16"}, {"extra:16", "bf16"},  {"extra:13:sr", "fp16"},
                           {"extra:4", "e5m2"}, {"extra:3:sr", "bf16"}};
TEST(Fused, EveryOptimizerAndRuleGivesTheSameBits) {
  for (const OptimizerKind kind : optimizer_kinds()) {
    for (const Rule& rule : kRules) {
      SCOPED_TRACE(std::string(optimizer_name(kind)) + " " + rule.rule + " " + rule.weight);
      for (const char* state : {"fp32", "8bit"}) {
        if (optimizer_traits(kind).only_grows && std::string(state) == "8bit") continue;
        ClassifierOptions made = options(rule.rule, rule.weight, kind);
        made.precision.updates.state = parse_state_format(state);
        const Outcome plain = train(made);
        EXPECT_EQ(plain, train(fused(made))) << state;
        EXPECT_GT(plain.updates[0].updates, 0u);
        // Clipping needs to know the norm first; and every element's own limit is known at once.
        ClassifierOptions clipped = made;
        clipped.clip_norm = 0.05;
        const Outcome by_norm = train(clipped);
        EXPECT_EQ(by_norm, train(fused(clipped))) << state;
        EXPECT_NE(by_norm, plain);
        const Outcome by_value = train(made, {}, 1e-3);
        EXPECT_EQ(by_value, train(fused(made), {}, 1e-3)) << state;
        EXPECT_NE(by_value, plain);
      }
    }
  }
}

TEST(Fused, AccumulationGivesTheSameBits) {
  for (const Rule& rule : kRules) {
    for (const double norm : {0.0, 0.05}) {
      SCOPED_TRACE(std::string(rule.rule) + " " + rule.weight);
      ClassifierOptions made = options(rule.rule, rule.weight, OptimizerKind::adamw);
      made.micro_batches = 4;
      made.clip_norm = norm;
      EXPECT_EQ(train(made), train(fused(made)));
    }
  }
}

// fp16 gradients at a scale of 2^40 overflow: steps 1 and 4 are refused.
TEST(Fused, OverflowsAreSkippedWithTheSameBits) {
  const std::vector<float> scales = {64, 0x1p40f, 64, 64, 0x1p40f, 128};
  for (const OptimizerKind kind : optimizer_kinds()) {
    for (const Rule& rule : kRules) {
      for (const int64_t micro_batches : {1, 4}) {
        for (const double norm : {0.0, 0.05}) {
          SCOPED_TRACE(std::string(optimizer_name(kind)) + " " + rule.rule + " " + rule.weight);
          ClassifierOptions made = options(rule.rule, rule.weight, kind);
          made.precision.policy = "amp:fp16";
          made.micro_batches = micro_batches;
          made.clip_norm = norm;
          made.may_skip = [](auto&&...) { return true; };
          const Outcome plain = train(made, scales);
          EXPECT_EQ(plain.updated, (std::vector<bool>{true, false, true, true, false, true}));
          EXPECT_EQ(plain, train(fused(made), scales));
          if (norm == 0) {
            EXPECT_EQ(plain, train(fused(made, OverflowCheck::snapshot), scales));
          }
        }
      }
    }
  }
}

// What is made twice is rounded twice, the same way; and narrow arithmetic is the same in any order
// of updates.
TEST(Fused, NarrowAssignmentsGiveTheSameBits) {
  for (const char* policy : {"size:0.5", "uniform", "op", "fpu16:bf16", "fpu16:e8m5"}) {
    SCOPED_TRACE(policy);
    ClassifierOptions made = options("stochastic", "bf16", OptimizerKind::sgd);
    made.precision.policy = policy;
    made.precision.updates.arithmetic = fpu_format(policy);
    made.clip_norm = 0.05;
    made.may_skip = [](auto&&...) { return true; };
    const std::vector<float> scales(6, 16.0f);
    EXPECT_EQ(train(made, scales), train(fused(made), scales));
  }
}

// Of all gradients no more than the few that backward has in hands is there at a time. What is left
// here is activations.
TEST(Fused, TakesTheMemoryOfFewGradients) {
  ClassifierOptions made = options("extra:8", "bf16", OptimizerKind::adamw);
  made.model.name = "resnet18";
  made.model.image = {3, 32, 32};
  made.model.batch = 1;
  made.compute.workspace = 1 << 16;
  const ClassifierEngine unfused(made), at_once(fused(made));
  made.clip_norm = 1;
  const ClassifierEngine twice(fused(made));
  EXPECT_TRUE(twice.makes_gradients_twice());
  const double gradients = 4 * static_cast<double>(unfused.graph().parameters());
  const auto step = [](const ClassifierEngine& engine) {
    return static_cast<double>(engine.training_plan().step_bytes());
  };
  EXPECT_GE(step(unfused), gradients);
  EXPECT_LT(step(at_once), step(unfused) - 0.25 * gradients);
  // Here the activations live on through the second making.
  EXPECT_LT(step(twice), step(unfused) - 0.25 * gradients);
}

TEST(Fused, ASnapshotCannotServeANorm) {
  ClassifierOptions made = fused(options("plain", "bf16", OptimizerKind::sgd), OverflowCheck::snapshot);
  made.clip_norm = 1;
  EXPECT_THROW(ClassifierEngine{made}, Error);
}

}  // namespace
}  // namespace ulp
