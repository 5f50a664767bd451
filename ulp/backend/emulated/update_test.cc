// Optimizer steps on many tensors in one task, the sums of squares of their gradients, and the
// found-inf check: bytes, range events and counts against the reference.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/optimizers.h"
#include "ulp/backend/cuda/optimizer/found_inf.h"
#include "ulp/backend/cuda/optimizer/update.h"
#include "ulp/backend/emulated/emulated.h"
#include "ulp/backend/found_inf.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/backend/update.h"
#include "ulp/graph/builder.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/tensor/memory.h"

namespace ulp::cuda {
namespace {

// How one parameter is updated and stored.
struct Parameter {
  int64_t elements;
  ParameterUpdate update;
  std::string weight, gradient, state;
};

class Bench {
 public:
  explicit Bench(const std::vector<Parameter>& parameters, double max_norm = 0) {
    Builder b{graph_, Mode::training};
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string name = fmt::format("w{}", i);
      const TensorId weight = b.weight(name, {parameters[i].elements}, Init::constant(0));
      TensorInfo grad;
      grad.name = name + ".grad";
      grad.shape = {parameters[i].elements};
      grad.kind = Kind::weight_grad;
      const TensorId made = graph_.add_tensor(std::move(grad));
      graph_.edit(weight).grad = made;
    }
    const auto parameter_of = [&](std::string_view tensor) -> const Parameter& {
      return parameters[std::stoul(std::string(tensor.substr(1)))];
    };
    add_updates(graph_,
                [&](TensorId weight) { return update_spec(parameter_of(graph_[weight].name).update); },
                {.max_norm = max_norm});
    for (const TensorInfo& tensor : graph_.tensors()) {
      std::string storage = "fp32";
      if (tensor.kind == Kind::weight || tensor.name.ends_with(".compensation")) {
        storage = parameter_of(tensor.name).weight;
      } else if (tensor.kind == Kind::weight_grad) {
        storage = parameter_of(tensor.name).gradient;
      } else if (tensor.kind == Kind::optimizer) {
        storage = parameter_of(tensor.name).state;
      }
      formats_.push_back({parse_storage(storage), {}});
    }
    for (size_t i = 0; i < graph_.node_count(); ++i) {
      const OpDef* op = graph_.nodes()[i].op;
      std::vector<NodeId>& nodes = op == &kUpdate ? updates_ : op == &kGradSquares ? squares_ : norm_;
      nodes.push_back({static_cast<int32_t>(i)});
    }
    state.seed = 5;
    state.step = 7;
    fill();
  }

  StepState state;
  std::optional<FloatFormat> arithmetic;
  Overflow overflow = Overflow::saturate;

  struct Outcome {
    std::vector<std::vector<uint8_t>> bytes;  // by tensor
    std::vector<EncodeStats> stats;
    std::vector<UpdateCounts> counts;
  };

  // The sums of squares and the norm if there are any, then all updates, in one task each.
  Outcome run(const Backend& backend) {
    Outcome made{memory_, std::vector<EncodeStats>(formats_.size()),
                 std::vector<UpdateCounts>(formats_.size())};
    const PlanContext plan{
        .graph = graph_, .formats = formats_, .options = {.overflow = overflow, .arithmetic = arithmetic}};
    std::vector<uint8_t*> data;
    for (auto& bytes : made.bytes) data.push_back(bytes.data());
    for (const auto& roots : {squares_, norm_, updates_}) {
      if (roots.empty()) continue;
      const Problem problem{plan, {}, roots, {}};
      const KernelDef* kernel = KernelChoice().pick(backend, problem);
      if (kernel == nullptr) throw std::logic_error("no kernel");
      const auto task = kernel->make(problem);
      std::vector<uint64_t> workspace(task->workspace() / 8 + 1, 0x7FF4DEAD7FA4BEEFu);
      RunContext context;
      context.data = data;
      context.state = &state;
      context.workspace = reinterpret_cast<uint8_t*>(workspace.data());
      context.stats = made.stats.data();
      context.updates = made.counts.data();
      task->run(context);
    }
    return made;
  }

  void compare(bool sums = false) {
    const Outcome expected = run(reference_backend()), made = run(emulated_backend());
    for (size_t i = 0; i < formats_.size(); ++i) {
      const TensorInfo& tensor = graph_.tensors()[i];
      const std::string what =
          tensor.name + ", " + storage_name(formats_[i].storage) + " of " + std::to_string(tensor.elements());
      // Sums of squares are added in another order.
      const bool exact = !sums || is_state(tensor.kind);
      EXPECT_TRUE(!exact || expected.bytes[i] == made.bytes[i]) << what;
      EXPECT_EQ(expected.stats[i], made.stats[i]) << what;
      EXPECT_EQ(expected.counts[i], made.counts[i]) << what;
      seen_.merge(expected.counts[i]);
      events_.merge(expected.stats[i]);
    }
  }

  void expect_untouched() {
    state.skip = 1;
    const Outcome made = run(emulated_backend());
    EXPECT_EQ(made.bytes, memory_);
    EXPECT_EQ(made.stats, std::vector<EncodeStats>(formats_.size()));
    EXPECT_EQ(made.counts, std::vector<UpdateCounts>(formats_.size()));
  }

  const UpdateCounts& counts() const { return seen_; }
  const EncodeStats& events() const { return events_; }

 private:
  // Values of all magnitudes, so that some updates are lost and some values leave the formats'
  // ranges; occasionally a gradient that is 0 or no number.
  void fill() {
    std::mt19937 random(3);
    for (size_t i = 0; i < formats_.size(); ++i) {
      const TensorInfo& tensor = graph_.tensors()[i];
      memory_.emplace_back(tensor_bytes(tensor, formats_[i].storage));
      if (tensor.element != Element::real) continue;
      std::vector<float> values(tensor.elements());
      for (float& value : values) {
        const auto word = static_cast<uint32_t>(random());
        value =
            std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), -static_cast<int>(word % 24));
        if (tensor.kind == Kind::optimizer) value = std::abs(value);
        if (tensor.kind != Kind::weight_grad) continue;
        if (word % 64 == 1) value = 0;
        if (word % 512 == 2) value = std::numeric_limits<float>::infinity();
        if (word % 512 == 3) value = std::nanf("");
        if (word % 256 == 4) value = std::ldexp(value, 120);
        if (word % 256 == 5) value = std::ldexp(value, -120);
      }
      const StorageSize size = storage_size(formats_[i].storage, values.size());
      uint8_t* data = memory_[i].data();
      encode(formats_[i].storage, {}, values, {data, size.code_bytes},
             {reinterpret_cast<uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words});
    }
  }

  Graph graph_;
  std::vector<TensorFormat> formats_;
  std::vector<NodeId> updates_, squares_, norm_;
  std::vector<std::vector<uint8_t>> memory_;
  UpdateCounts seen_;
  EncodeStats events_;
};

constexpr std::array<int64_t, 7> kSizes = {1, 7, 8, 255, 256, 257, 1000};

const std::vector<NamedOptimizer> kForms = optimizer_forms();
const OptimizerConfig kMomentum = test_optimizer(OptimizerKind::sgd);
const OptimizerConfig kAdamw = test_optimizer(OptimizerKind::adamw);

// Weights, states, and the rules that go with them.
struct Stored {
  const char *weight, *state;
  bool compensated = false, stochastic = false, state_stochastic = false;
};
constexpr Stored kStored[] = {
    {"fp32", "fp32"},
    {"fp32", "bf16"},
    {"bf16", "bf16"},
    {"bf16", "fp32"},
    {"bf16", "bf16", false, true},
    {"bf16", "bf16", true, true, true},
    {"bf16+16", "bf16"},
    {"bf16+16", "fp32"},
    {"bf16+8", "bf16"},
    {"bf16+8sr", "bf16", false, false, true},
    {"fp16+8", "fp16"},
    {"e5m2+5", "e4m3"},
    {"fp16", "scaled(e4m3)", true},
    {"e8m5", "scaled(e5m2,nonzero)", false, true, true},
    {"scaled(e4m3)", "fp(6,9,0)"},
    {"s2fp8", "s2fp8"},
    {"fp32", "fp32", true},
};
constexpr const char* kGradients[] = {"fp32", "bf16", "fp16", "e5m2", "s2fp8", "e8m5", "scaled(e4m3)"};

// Every storage in three sizes; sizes, optimizers, gradients and rates in turn.
std::vector<Parameter> parameters(size_t optimizer, size_t kinds) {
  std::vector<Parameter> made;
  for (const Stored& stored : kStored) {
    for (size_t k = 0; k < 3; ++k) {
      const size_t i = made.size();
      const ParameterUpdate update{kForms[(optimizer + i % kinds) % kForms.size()].config, stored.compensated,
                                   stored.stochastic, stored.state_stochastic,
                                   1 - 0.25 * static_cast<double>(i % 4)};
      made.push_back({kSizes[(i + optimizer) % kSizes.size()], update, stored.weight,
                      kGradients[(i + i / kSizes.size()) % std::size(kGradients)], stored.state});
    }
  }
  return made;
}

TEST(EmulatedUpdate, ManyTensorsOfOneOptimizer) {
  for (size_t optimizer = 0; optimizer < kForms.size(); ++optimizer) {
    Bench bench(parameters(optimizer, 1));
    // Some clip gradients, some keep infinities.
    const bool cut = optimizer % 2 == 1;
    const double clip_value = cut ? 0.5 : std::numeric_limits<double>::infinity();
    bench.state.update = update_scalars(kForms[optimizer].config, 2, 0.05, 1.0 / 16, clip_value);
    bench.overflow = cut ? Overflow::saturate : Overflow::infinity;
    bench.compare();
    EXPECT_GT(bench.counts().cancelled, 10u);
    EXPECT_LT(bench.counts().cancelled, bench.counts().updates / 2);
    EXPECT_GT(bench.events().nan, 0u);
    EXPECT_GT(bench.events().underflow, 0u);
    if (!cut) {
      EXPECT_GT(bench.events().overflow, 0u);
    }
  }
}

TEST(EmulatedUpdate, ASkippedStepChangesNothing) {
  Bench(parameters(0, kForms.size())).expect_untouched();
  Bench narrow(parameters(0, kForms.size()));
  narrow.arithmetic = parse_format("bf16");
  narrow.expect_untouched();
}

TEST(EmulatedUpdate, AllOptimizersInOneTask) {
  Bench bench(parameters(0, kForms.size()));
  bench.state.update = update_scalars(kAdamw, 0, 0.05);
  bench.compare();
}

TEST(EmulatedUpdate, NarrowArithmetic) {
  for (const char* format : {"bf16", "fp16"}) {
    Bench bench(parameters(0, kForms.size()));
    bench.arithmetic = parse_format(format);
    bench.state.update = update_scalars(kAdamw, 3, 0.05, 1, 2, bench.arithmetic);
    bench.compare();
  }
}

// More tensors and more recipes than one launch takes, and tensors of several blocks.
TEST(EmulatedUpdate, SeveralLaunches) {
  std::vector<Parameter> many;
  for (uint32_t i = 0; i < kBatchTensors + 3 * kBatchRecipes; ++i) {
    OptimizerConfig config = kAdamw;
    if (i > kBatchTensors + 5) config.weight_decay = 0.001 * i;
    many.push_back({i == 3 ? 20001 : 5, {config}, "fp32", "bf16", "fp32"});
  }
  Bench bench(many);
  bench.state.update = update_scalars(kAdamw, 0, 0.05);
  bench.compare();
}

// Gradients are finite here, so the clip factor is the same: sums in double that differ in their
// last bits round to the same fp32, except next to a tie.
TEST(EmulatedUpdate, ClipsByTheNorm) {
  std::vector<Parameter> some;
  for (const int64_t elements : kSizes) some.push_back({elements, {kMomentum}, "bf16", "e4m3", "fp32"});
  some.push_back({50000, {kMomentum}, "fp32", "e4m3", "fp32"});
  for (const double max_norm : {1e-2, 1e9}) {
    Bench bench(some, max_norm);
    bench.state.update = update_scalars(kMomentum, 0, 0.05, 1.0 / 4);
    bench.compare(true);
  }
}

TEST(EmulatedFoundInf, SetsAndClearsSkip) {
  const Graph graph;
  const PlanContext plan{.graph = graph, .formats = {}};
  const size_t count = kFoundInfTensors + 10;  // two launches
  std::vector<TensorId> gradients;
  for (size_t i = 0; i < count; ++i) gradients.push_back({static_cast<int32_t>(i)});
  const TensorId sums{static_cast<int32_t>(count)};
  float loss = 1;
  std::vector<uint8_t*> data(count + 1, nullptr);
  data[count] = reinterpret_cast<uint8_t*>(&loss);
  std::vector<EncodeStats> stats(count + 1);
  StepState state;
  RunContext context;
  context.data = data;
  context.state = &state;
  context.stats = stats.data();
  const auto verdict = [&](uint32_t before) {
    state.skip = before;
    make_found_inf(plan, gradients, sums)->run(context);
    return state.skip;
  };
  for (EncodeStats& one : stats) one.underflow = 3;
  EXPECT_EQ(verdict(1), 0u);
  for (const size_t bad : {size_t{0}, size_t{700}, count - 1}) {
    stats[bad].overflow = 1;
    EXPECT_EQ(verdict(0), 1u);
    stats[bad].overflow = 0;
    stats[bad].nan = uint64_t{1} << 40;
    EXPECT_EQ(verdict(0), 1u);
    stats[bad].nan = 0;
  }
  stats[count].nan = 1;  // not one of those listed
  EXPECT_EQ(verdict(0), 0u);
  loss = std::numeric_limits<float>::infinity();
  EXPECT_EQ(verdict(0), 1u);
  loss = std::nanf("");
  EXPECT_EQ(verdict(0), 1u);
}

// Any kind of tensor, any event, any loss: the kernel sets skip where the host would refuse the step.
TEST(EmulatedFoundInf, AgreesWithTheHost) {
  Graph graph;
  Builder b{graph, Mode::training};
  const TensorId x = input(b, "x", {2, 3});
  const TensorId y = linear(b, "last", relu(b, "relu", linear(b, "first", x, {.out = 3})), {.out = 2});
  differentiate(graph, mse(b, "loss", y, target(b, "target", {2, 2})));
  add_updates(graph, [](TensorId) { return update_spec(OptimizerConfig{}); }, {.twice = true});
  const std::vector<TensorId> gradients = checked_gradients(graph);
  EXPECT_GT(gradients.size(), 4u);
  const size_t count = graph.tensor_count();
  float loss = 1;
  const TensorId sums{static_cast<int32_t>(count)};
  std::vector<uint8_t*> data(count + 1, nullptr);
  data[count] = reinterpret_cast<uint8_t*>(&loss);
  size_t skipped = 0, trials = 0;
  const auto agree = [&](const std::vector<EncodeStats>& given) {
    std::vector<EncodeStats> stats = given;
    StepState state;
    RunContext context;
    context.data = data;
    context.state = &state;
    context.stats = stats.data();
    make_found_inf({.graph = graph, .formats = {}}, gradients, sums)->run(context);
    EXPECT_EQ(state.skip != 0, gradients_overflowed(loss, graph, given));
    skipped += state.skip;
    ++trials;
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float l : {1.0f, 0.0f, -2.0f, std::numeric_limits<float>::max(), kInf, -kInf, std::nanf("")}) {
    loss = l;
    agree(std::vector<EncodeStats>(count));
    for (size_t i = 0; i < count; ++i) {
      for (const EncodeStats& event : {EncodeStats{.overflow = 1}, EncodeStats{.underflow = 1},
                                       EncodeStats{.nan = 1}, EncodeStats{.amax = kInf}}) {
        std::vector<EncodeStats> stats(count);
        stats[i] = event;
        agree(stats);
      }
    }
  }
  const size_t each = 4 * count + 1;
  EXPECT_EQ(trials, 7 * each);
  EXPECT_EQ(skipped, 3 * each + 4 * 2 * gradients.size());
}

}  // namespace
}  // namespace ulp::cuda
