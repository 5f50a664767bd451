// Whole training steps: what a plan leaves out, moves or overwrites never changes a bit, and takes the memory that was
// planned.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/ref/reference.h"
#include "ulp/backend/runner.h"
#include "ulp/backend/update.h"
#include "ulp/base/parallel.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/models/model.h"
#include "ulp/plan/plan.h"
#include "ulp/precision/assignment.h"
#include "ulp/train/executor.h"
#include "ulp/train/init.h"

namespace ulp {
namespace {

constexpr int64_t kBatch = 3;
constexpr int kSteps = 2;

OptimizerConfig optimizer() {
  OptimizerConfig config;
  config.momentum = 0.9;
  config.weight_decay = 5e-4;
  return config;
}

struct TrainingGraph {
  ClassifierGraph classifier;
  std::vector<float> images;
  std::vector<int32_t> labels;
};

TrainingGraph make_graph(const std::string& name, double clip_norm = 0) {
  TrainingGraph made;
  ModelRequest request;
  request.name = name;
  request.width = 0.25;
  request.batch = kBatch;
  request.label_smoothing = 0.1;
  made.classifier = build_classifier(request, Mode::training);
  differentiate(made.classifier.graph, made.classifier.loss);
  add_updates(made.classifier.graph, update_attrs(optimizer()), state_names(make_optimizer(optimizer())),
              clip_norm);
  made.images.resize(made.classifier.graph[made.classifier.input].elements());
  fill_initial(Init::normal(1), 7, 1, made.images);
  for (int32_t i = 0; i < kBatch; ++i) made.labels.push_back(i % 10);
  return made;
}

// Every tensor a storage of its own, chosen by its name: the worst that a policy could do.
Assignment mixed(const Graph& graph, const std::vector<std::string>& storages) {
  Assignment assignment;
  for (const TensorInfo& tensor : graph.tensors()) {
    const bool can = tensor.kind == Kind::activation || tensor.kind == Kind::activation_grad ||
                     tensor.kind == Kind::weight || tensor.kind == Kind::weight_grad;
    if (!can || tensor.like) continue;
    assignment.storage[tensor.name] = parse_storage(storages[tensor.number / 7 % storages.size()]);
  }
  return assignment;
}

StepState step_state(int step) {
  StepState state;
  state.seed = 11;
  state.step = static_cast<uint32_t>(step);
  state.loss_scale = 256;
  state.update = update_scalars(optimizer(), static_cast<uint64_t>(step), 0.05, 1.0 / 256);
  return state;
}

using Bits = std::map<std::string, std::vector<uint8_t>>;

struct Trained {
  Bits state;
  std::vector<EncodeStats> stats;  // of the last step
  size_t peak = 0, planned = 0;
};

Trained run_plan(const TrainingGraph& made, const Assignment& assignment, PlanOptions options,
                 uint8_t poison) {
  const Graph& graph = made.classifier.graph;
  options.results = {made.classifier.sums};
  const Plan plan(graph, resolve_formats(graph, assignment), options);
  Memory memory;
  State state(memory);
  state.add(plan, 5);
  const Block arena = memory.allocate(plan.step_bytes());
  Executor executor(plan);
  executor.bind(state, arena.data());
  executor.feed(made.classifier.input, made.images.data());
  executor.feed(made.classifier.labels, made.labels.data());
  Trained run;
  for (int step = 0; step < kSteps; ++step) {
    // Nothing may be read in a step that it has not written.
    std::memset(arena.data(), poison, arena.bytes());
    executor.run(step_state(step), true);
  }
  run.stats.assign(executor.stats().begin(), executor.stats().end());
  run.peak = memory.peak();
  run.planned = plan.peak_bytes();
  EXPECT_EQ(plan.bytes().total(), plan.peak_bytes());
  for (const auto& [name, slot] : state.slots())
    run.state[name].assign(slot.codes().begin(), slot.codes().end());
  return run;
}

// Every tensor in memory of its own, every node by itself.
Trained run_apart(const TrainingGraph& made, const Assignment& assignment, const Backend& backend) {
  const Graph& graph = made.classifier.graph;
  NodeRunner runner(graph, resolve_formats(graph, assignment), backend);
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (!is_state(graph[id].kind)) continue;
    std::vector<float> values(graph[id].elements());
    fill_initial(graph[id].init, 5, graph[id].number, values);
    runner.set(id, values);
  }
  runner.feed(made.classifier.input, made.images.data());
  runner.feed(made.classifier.labels, made.labels.data());
  for (int step = 0; step < kSteps; ++step) {
    runner.state = step_state(step);
    runner.run();
  }
  Trained run;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    run.stats.push_back(runner.stats(id));
    if (!is_state(graph[id].kind)) continue;
    const auto bytes = runner.bytes(id).subspan(0, 4 * graph[id].elements());
    run.state[graph[id].name].assign(bytes.begin(), bytes.end());
  }
  return run;
}

void expect_same(const Trained& a, const Trained& b, const std::string& what) {
  ASSERT_EQ(a.state.size(), b.state.size());
  for (const auto& [name, bits] : a.state) ASSERT_EQ(bits, b.state.at(name)) << what << ": " << name;
}

PlanOptions fused() {
  PlanOptions options;
  options.backend = &cpu_backend();
  return options;
}

const std::vector<std::string> kModels = {"resnet8",    "resnet18", "mobilenetv2", "shufflenetv2",
                                          "squeezenet", "lenet",    "mlp"};
const std::map<std::string, std::vector<std::string>> kAssignments = {
    {"fp32", {"fp32"}},
    {"fp(6,9,0)", {"fp(6,9,0)"}},
    {"fp(4,3,4)", {"fp(4,3,4)"}},
    {"mixed", {"fp32", "fp(6,9,0)", "fp(4,3,4)", "fp(5,2,0)", "bf16", "e8m5", "s2fp8"}},
};

class StepTest : public testing::TestWithParam<std::string> {};

TEST_P(StepTest, PlansChangeNoBit) {
  const TrainingGraph made = make_graph(GetParam());
  for (const auto& [name, storages] : kAssignments) {
    const Assignment assignment = mixed(made.classifier.graph, storages);
    const Trained apart = run_apart(made, assignment, cpu_backend());
    const Trained whole = run_plan(made, assignment, fused(), 0xFF);
    expect_same(apart, whole, name + ", fused");
    EXPECT_EQ(whole.peak, whole.planned) << name;
    PlanOptions plain = fused();
    plain.fuse = false;
    expect_same(apart, run_plan(made, assignment, plain, 0x55), name + ", unfused");
    PlanOptions early = fused();
    early.fused_backward = true;
    expect_same(apart, run_plan(made, assignment, early, 0xAA), name + ", fused backward");
  }
}

// A tensor that is never stored still reports its range events, once.
TEST_P(StepTest, RangeEventsAreThoseOfTheNodesApart) {
  const TrainingGraph made = make_graph(GetParam());
  const Graph& graph = made.classifier.graph;
  const Assignment assignment = mixed(graph, {"fp(4,3,4)", "fp(5,2,0)"});
  const Trained apart = run_apart(made, assignment, cpu_backend()),
                whole = run_plan(made, assignment, fused(), 0);
  size_t events = 0;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorInfo& tensor = graph.tensors()[i];
    if (tensor.kind == Kind::weight || tensor.producer.index < 0) continue;
    // Codes that are only moved are not written again and report nothing.
    const OpDef* op = graph[tensor.producer].op;
    if (op == &kCopy || op == &kConcat || op == &kSplit || op->moves) continue;
    EXPECT_EQ(whole.stats[i], apart.stats[i]) << tensor.name;
    events += apart.stats[i].underflow + apart.stats[i].overflow;
  }
  EXPECT_GT(events, 0u);
}

TEST_P(StepTest, ThreadsChangeElementwiseWorkInNoBit) {
  const TrainingGraph made = make_graph(GetParam());
  const Assignment assignment = mixed(made.classifier.graph, {"fp(6,9,0)"});
  const int threads = thread_count();
  PlanOptions options = fused();
  // oneDNN's products may be added up in another order on another number of threads; the rest may not.
  options.kernels = KernelChoice(
      "conv2d=reference,conv2d_grad_input=reference,conv2d_grad_weight=reference,linear=reference,"
      "linear_grad_input=reference,linear_grad_weight=reference",
      cpu_backend());
  set_thread_count(1);
  const Trained one = run_plan(made, assignment, options, 0);
  set_thread_count(3);
  const Trained three = run_plan(made, assignment, options, 0);
  set_thread_count(threads);
  expect_same(one, three, "1 and 3 threads");
}

INSTANTIATE_TEST_SUITE_P(Models, StepTest, testing::ValuesIn(kModels),
                         [](const auto& model) { return model.param; });

TEST(Step, ClippingByNormIsPlannedToo) {
  const TrainingGraph made = make_graph("resnet8", 0.01);
  const Assignment assignment = mixed(made.classifier.graph, {"fp32"});
  expect_same(run_apart(made, assignment, cpu_backend()), run_plan(made, assignment, fused(), 0xFF),
              "clipped");
}

}  // namespace
}  // namespace ulp
