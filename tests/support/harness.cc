#include "tests/support/harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/node_runner.h"
#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/update.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops.h"
#include "ulp/precision/assignment.h"
#include "ulp/runtime/executor.h"
#include "ulp/runtime/init.h"
#include "ulp/tensor/memory.h"

namespace ulp::harness {
namespace {

constexpr int kSteps = 2;  // the second reads what the first updated
constexpr uint64_t kStateSeed = 5;
constexpr size_t kRedZone = 64 * kMemoryAlignment;

using Bytes = std::vector<uint8_t>;

TensorId tensor_at(size_t i) { return TensorId{static_cast<int32_t>(i)}; }

OptimizerConfig optimizer() {
  OptimizerConfig config;
  config.momentum = 0.9;
  config.weight_decay = 5e-4;
  return config;
}

StepState step_state(int step, int micro_batch) {
  constexpr float kLossScale = 256;
  StepState state;
  state.seed = 11;
  state.step = static_cast<uint32_t>(step);
  state.micro_batch = static_cast<uint16_t>(micro_batch);
  state.loss_scale = kLossScale;
  state.update = update_scalars(optimizer(), static_cast<uint64_t>(step), 0.05, 1.0 / kLossScale);
  return state;
}

// Executors and runners are fed alike.
template <typename Runs>
void feed(const TrainingGraph& made, int micro_batch, Runs& runs) {
  const ClassifierGraph& net = made.net;
  const size_t at = static_cast<size_t>(micro_batch);
  runs.feed(net.input, made.images.data() + at * net.graph[net.input].elements());
  runs.feed(net.labels, made.labels.data() + at * net.graph[net.labels].elements());
}

// The codes of a tensor and the words beside them, without the bytes that only align.
Bytes stored(const TensorInfo& tensor, const Storage& storage, const uint8_t* data) {
  const StorageSize size = storage_size(storage, tensor.elements());
  Bytes bytes(data, data + size.code_bytes);
  const uint8_t* side = data + aligned_bytes(size.code_bytes);
  bytes.insert(bytes.end(), side, side + 4 * size.side_words);
  return bytes;
}

std::string sums_name(int step, int micro_batch) {
  return fmt::format("sums of step {}, micro-batch {}", step, micro_batch);
}

// A sum over micro-batches outlives a run, one within a run is the plan's business.
bool outlives_run(const TensorInfo& tensor, int micro_batches) {
  return is_state(tensor.kind) || (tensor.kind == Kind::grad_sum && micro_batches > 1);
}

// On any device: what is looked at here is a copy.
class GuardedArena {
 public:
  GuardedArena(Memory& memory, size_t bytes)
      : block_(memory.allocate(bytes + 2 * kRedZone)), copy_(bytes + 2 * kRedZone) {}
  uint8_t* data() const { return block_.data() + kRedZone; }
  // Nothing may be read in a run that it has not written.
  void poison(uint8_t with) {
    poison_ = with;
    std::fill(copy_.begin(), copy_.end(), with);
    block_.device().upload(block_.data(), copy_.data(), copy_.size());
  }
  bool guards_are_whole() {
    block_.device().download(copy_.data(), block_.data(), copy_.size());
    const auto poisoned = [this](uint8_t byte) { return byte == poison_; };
    return std::all_of(copy_.begin(), copy_.begin() + kRedZone, poisoned) &&
           std::all_of(copy_.end() - kRedZone, copy_.end(), poisoned);
  }

 private:
  Block block_;
  Bytes copy_;
  uint8_t poison_ = 0;
};

void expect_planned_memory(const Plan& plan, const Memory& memory) {
  EXPECT_EQ(memory.peak(), plan.peak_bytes() + Executor::device_bytes(plan) + 2 * kRedZone);
  // Of what is not workspace no byte counts twice: workspace is what is left of the peak.
  EXPECT_LE(plan.bytes().workspace, plan.step_bytes());
  EXPECT_GE(plan.step_bytes(), plan.step_bytes_bound());
}

std::string events_text(const EncodeStats& stats) {
  return fmt::format("{} overflows, {} underflows, {} NaN, up to {}", stats.overflow, stats.underflow,
                     stats.nan, stats.amax);
}

// Of what a step makes; weights it only reads.
Recorder recorder_of(const Graph& graph) {
  Recorder recorder(graph.tensor_count());
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const Kind kind = graph.tensors()[i].kind;
    if (kind == Kind::activation || kind == Kind::activation_grad || kind == Kind::weight_grad)
      recorder.want(tensor_at(i));
  }
  return recorder;
}

void keep_records(const Graph& graph, const Recorder& recorder, Trained& run) {
  for (size_t i = 0; i < graph.tensor_count(); ++i) run.records.push_back(recorder.of(tensor_at(i)));
}

void start_state(const Graph& graph, NodeRunner& runner) {
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorInfo& tensor = graph.tensors()[i];
    if (!is_state(tensor.kind)) continue;
    std::vector<float> values(tensor.elements());
    fill_initial(tensor.init, kStateSeed, tensor.number, values);
    runner.set(tensor_at(i), values);
  }
}

}  // namespace

void make_step(TrainingGraph& made, uint64_t image_seed, int micro_batches, double clip_norm) {
  Graph& graph = made.net.graph;
  differentiate(graph, made.net.loss, micro_batches);
  add_updates(graph, update_spec(optimizer()), clip_norm);
  const auto many = static_cast<size_t>(micro_batches);
  made.micro_batches = micro_batches;
  made.images.resize(many * graph[made.net.input].elements());
  fill_initial(Init::normal(1), image_seed, 1, made.images);
  made.labels.resize(many * graph[made.net.labels].elements());
  const auto classes = static_cast<size_t>(graph[made.net.scores].shape.back());
  for (size_t i = 0; i < made.labels.size(); ++i) made.labels[i] = static_cast<int32_t>(i % classes);
}

std::vector<TensorFormat> choose_formats(const Graph& graph,
                                         const std::function<std::string(const TensorInfo&)>& choose) {
  Assignment assignment;
  for (const TensorInfo& tensor : graph.tensors()) {
    const bool can = tensor.kind == Kind::activation || tensor.kind == Kind::activation_grad ||
                     tensor.kind == Kind::weight || tensor.kind == Kind::weight_grad;
    if (can && !tensor.format_from) assignment.storage[tensor.name] = parse_storage(choose(tensor));
  }
  return resolve_formats(graph, assignment);
}

PlanOptions cpu_plan() {
  PlanOptions options;
  options.backend = &cpu_backend();
  return options;
}

KernelChoice reference_products() {
  return KernelChoice(
      "conv2d=reference,conv2d_grad_input=reference,conv2d_grad_weight=reference,linear=reference,"
      "linear_grad_input=reference,linear_grad_weight=reference",
      cpu_backend());
}

Trained run_plan(const TrainingGraph& made, const std::vector<TensorFormat>& formats, PlanOptions options,
                 uint8_t poison) {
  const Graph& graph = made.net.graph;
  const std::vector<TensorId> results = options.results;
  options.results.push_back(made.net.sums);
  options.micro_batches = made.micro_batches;
  const Plan plan(graph, formats, options);
  Memory memory(device_of(*options.backend));
  State state(memory);
  state.add(plan, kStateSeed);
  GuardedArena arena(memory, plan.step_bytes());
  Executor executor(plan);
  executor.bind(state, arena.data());

  Trained run;
  Recorder recorder = recorder_of(graph);
  const auto keep = [&](TensorId id, const std::string& name) {
    ASSERT_NE(plan.place(id).home, Home::nowhere) << name;
    const Storage& storage = formats[static_cast<size_t>(id.index)].storage;
    run.bits[name] = stored(graph[id], storage, executor.bytes(id).data());
  };
  for (int step = 0; step < kSteps; ++step) {
    for (int micro_batch = 0; micro_batch < made.micro_batches; ++micro_batch) {
      feed(made, micro_batch, executor);
      arena.poison(poison);
      const bool recorded = step == kSteps - 1 && memory.device().on_host();
      executor.record(recorded ? &recorder : nullptr);
      executor.run(step_state(step, micro_batch), micro_batch == made.micro_batches - 1);
      EXPECT_TRUE(arena.guards_are_whole()) << "a step writes outside its arena";
      keep(made.net.sums, sums_name(step, micro_batch));
    }
  }
  for (const TensorId id : results) keep(id, "result " + graph[id].name);
  for (const auto& [name, slot] : state.slots()) {
    run.bits[name] = stored(graph[graph.find(name)], slot.storage, slot.bytes().data());
  }
  run.stats.assign(executor.stats().begin(), executor.stats().end());
  for (size_t i = 0; i < run.stats.size(); ++i) run.stats[i].merge(executor.update_stats()[i]);
  keep_records(graph, recorder, run);
  expect_planned_memory(plan, memory);
  return run;
}

Trained run_apart(const TrainingGraph& made, const std::vector<TensorFormat>& formats,
                  const PlanOptions& options) {
  const Graph& graph = made.net.graph;
  NodeRunner runner(graph, formats, *options.backend, options.kernels, options.compute);
  start_state(graph, runner);

  Trained run;
  Recorder recorder = recorder_of(graph);
  const auto keep = [&](TensorId id, const std::string& name) {
    const Storage& storage = formats[static_cast<size_t>(id.index)].storage;
    run.bits[name] = stored(graph[id], storage, runner.bytes(id).data());
  };
  for (int step = 0; step < kSteps; ++step) {
    for (int micro_batch = 0; micro_batch < made.micro_batches; ++micro_batch) {
      feed(made, micro_batch, runner);
      const bool recorded = step == kSteps - 1 && device_of(*options.backend).on_host();
      runner.record(recorded ? &recorder : nullptr);
      runner.state = step_state(step, micro_batch);
      if (micro_batch == made.micro_batches - 1) {
        runner.run();
      } else {
        runner.run(Phase::forward);
        runner.run(Phase::backward);
      }
      keep(made.net.sums, sums_name(step, micro_batch));
    }
  }
  for (const TensorId id : options.results) keep(id, "result " + graph[id].name);
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id = tensor_at(i);
    if (outlives_run(graph[id], made.micro_batches)) keep(id, graph[id].name);
    run.stats.push_back(runner.stats(id));
  }
  keep_records(graph, recorder, run);
  return run;
}

void expect_same_bits(const Trained& apart, const Trained& planned, const std::string& what) {
  ASSERT_EQ(apart.bits.size(), planned.bits.size()) << what;
  for (const auto& [name, bits] : apart.bits) {
    const auto found = planned.bits.find(name);
    ASSERT_NE(found, planned.bits.end()) << what << ": " << name << " is missing";
    // Not EXPECT_EQ, which would print every byte.
    EXPECT_TRUE(bits == found->second) << what << ": other bits in " << name;
  }
}

size_t expect_same_records(const Graph& graph, const Trained& apart, const Trained& planned) {
  size_t elements = 0;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorInfo& tensor = graph.tensors()[i];
    if (!tensor.producer) continue;
    // As with range events: what is only moved is not written again.
    const OpDef* op = graph[tensor.producer].op;
    if (op == &kCopy || op == &kConcat || op == &kSplit || op->moves) continue;
    const TensorRecord &one = apart.records[i], &other = planned.records[i];
    EXPECT_TRUE(one.x == other.x && one.y == other.y && one.shifted == other.shifted)
        << "other exponents in " << tensor.name;
    for (const uint64_t count : one.x.bin) elements += count;
    elements += one.x.zero;
  }
  return elements;
}

size_t expect_same_events(const Graph& graph, const Trained& apart, const Trained& planned) {
  size_t events = 0;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorInfo& tensor = graph.tensors()[i];
    if (tensor.kind == Kind::weight || !tensor.producer) continue;
    // Codes that are only moved are not written again and report nothing.
    const OpDef* op = graph[tensor.producer].op;
    if (op == &kCopy || op == &kConcat || op == &kSplit || op->moves) continue;
    EXPECT_TRUE(apart.stats[i] == planned.stats[i])
        << "range events of " << tensor.name << ": " << events_text(apart.stats[i]) << " apart, "
        << events_text(planned.stats[i]) << " planned";
    events += apart.stats[i].underflow + apart.stats[i].overflow;
  }
  return events;
}

}  // namespace ulp::harness
