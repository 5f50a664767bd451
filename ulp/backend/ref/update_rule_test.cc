// The update rules of the reference against loops that are written here, one operation at a time.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ulp/backend/ref/reference.h"
#include "ulp/backend/update.h"
#include "ulp/graph/ops.h"
#include "ulp/numeric/rounding.h"
#include "ulp/tensor/stored.h"

namespace ulp::ref {
namespace {

using Values = std::vector<float>;

// One weight with a gradient that the test gives, and its update.
class Lone {
 public:
  Lone(const ParameterUpdate& update, const std::string& weight_storage, const std::string& state_storage,
       size_t n) {
    TensorInfo info;
    info.name = "w";
    info.shape = {static_cast<int64_t>(n)};
    info.kind = Kind::weight;
    weight = graph.add_tensor(info);
    info.name = "w.grad";
    info.kind = Kind::weight_grad;
    grad = graph.add_tensor(info);
    graph.edit(weight).grad = grad;
    add_updates(graph, update_spec(update));
    for (const TensorInfo& tensor : graph.tensors()) {
      const bool as_weight = tensor.kind == Kind::weight || tensor.name == "w.compensation";
      formats.push_back({parse_storage(as_weight                        ? weight_storage
                                       : tensor.kind == Kind::optimizer ? state_storage
                                                                        : "fp32"),
                         {}});
      memory.emplace_back(tensor_bytes(tensor, formats.back().storage));
    }
    stats.resize(memory.size());
    updates.resize(memory.size());
  }

  void set(TensorId id, const Values& values) {
    const StoredParts parts = stored_parts(storage(id), memory[index(id)].data(), values.size());
    encode(storage(id), {}, values, parts.codes, parts.side);
  }
  Values get(TensorId id) {
    Values values(graph[id].elements());
    const StoredParts parts = stored_parts(storage(id), memory[index(id)].data(), values.size());
    decode(storage(id), parts.codes, parts.side, values);
    return values;
  }

  // Counts and events are those of the last run.
  void run() {
    const PlanContext plan{graph, formats};
    const Problem problem{plan, {}, {NodeId{0}}, {}};
    const auto task = KernelChoice().pick(reference_backend(), problem)->make(problem);
    std::vector<uint8_t*> data;
    for (std::vector<uint8_t>& bytes : memory) data.push_back(bytes.data());
    std::vector<uint8_t> workspace(task->workspace());
    stats.assign(stats.size(), {});
    updates.assign(updates.size(), {});
    RunContext context;
    context.data = data;
    context.state = &state;
    context.workspace = workspace.data();
    context.stats = stats.data();
    context.updates = updates.data();
    task->run(context);
  }

  const UpdateCounts& counts() const { return updates[index(weight)]; }

  Graph graph;
  TensorId weight, grad;
  std::vector<TensorFormat> formats;
  std::vector<std::vector<uint8_t>> memory;
  std::vector<EncodeStats> stats;
  std::vector<UpdateCounts> updates;
  StepState state;

 private:
  static size_t index(TensorId id) { return static_cast<size_t>(id.index); }
  const Storage& storage(TensorId id) const { return formats[index(id)].storage; }
};

constexpr size_t kCount = 200;

float wave(size_t i, int step) {
  return std::sin(static_cast<float>(i) * 0.7f + static_cast<float>(step) * 1.3f);
}

// Algorithm 1 of the BF16 paper in the compiler's own half precision.
TEST(UpdateRules, KahanIsAlgorithm1) {
  using Half = _Float16;
  OptimizerConfig config;
  Lone lone({config, true}, "fp16", "fp32", kCount);
  const TensorId compensation = lone.graph.find("w.compensation");
  std::vector<Half> w(kCount), c(kCount);
  for (size_t i = 0; i < kCount; ++i) w[i] = static_cast<Half>(wave(i, 0));
  const auto floats = [](const std::vector<Half>& halves) { return Values(halves.begin(), halves.end()); };
  lone.set(lone.weight, floats(w));
  uint64_t lost = 0;
  for (int step = 0; step < 500; ++step) {
    Values grad(kCount);
    for (size_t i = 0; i < kCount; ++i) grad[i] = wave(i, step) * (i % 3 == 0 ? 1e-3f : 1e-5f);
    if (step % 7 == 0) grad[5] = 0;
    lone.set(lone.grad, grad);
    lone.state.update = update_scalars(config, static_cast<uint64_t>(step), 0.01);
    lone.run();
    uint64_t updates = 0, cancelled = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const float decrease = 0.01f * grad[i];
      const Half u = static_cast<Half>(-decrease);
      const Half y = static_cast<Half>(u - c[i]);
      const Half s = static_cast<Half>(w[i] + y);
      const Half moved = static_cast<Half>(s - w[i]);
      const Half error = static_cast<Half>(moved - y);
      updates += decrease != 0 ? 1 : 0;
      cancelled += decrease != 0 && s == w[i] && error == c[i] ? 1 : 0;
      w[i] = s;
      c[i] = error;
    }
    ASSERT_EQ(lone.get(lone.weight), floats(w)) << step;
    ASSERT_EQ(lone.get(compensation), floats(c)) << step;
    ASSERT_EQ(lone.counts(), (UpdateCounts{updates, cancelled})) << step;
    lost += cancelled;
  }
  EXPECT_GT(lost, 0u);
}

// The word of element i decides whether it is rounded up.
TEST(UpdateRules, StochasticUsesTheWordOfEachElement) {
  OptimizerConfig config;
  ParameterUpdate update{config};
  update.stochastic = true;
  Lone lone(update, "bf16", "fp32", kCount);
  Values w(kCount), grad(kCount);
  for (size_t i = 0; i < kCount; ++i) w[i] = bits_float(float_bits(wave(i, 0)) & 0xFFFF0000u);
  lone.set(lone.weight, w);
  uint64_t lost = 0;
  for (uint32_t step = 0; step < 100; ++step) {
    for (size_t i = 0; i < kCount; ++i) grad[i] = i % 10 == 0 ? 0 : wave(i, static_cast<int>(step));
    lone.set(lone.grad, grad);
    lone.state.seed = 17;
    lone.state.step = step;
    lone.state.update = update_scalars(config, step, 1e-3);
    lone.run();
    const RoundKey key{17, step, lone.graph[lone.weight].number, 0};
    uint64_t updates = 0, cancelled = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const float decrease = 1e-3f * grad[i];
      const uint32_t exact = float_bits(w[i] - decrease);
      const uint32_t up = random_word(key, i) < exact << 16 ? 0x10000u : 0;
      const float next = bits_float((exact & 0xFFFF0000u) + up);
      updates += decrease != 0 ? 1 : 0;
      cancelled += decrease != 0 && next == w[i] ? 1 : 0;
      w[i] = next;
    }
    ASSERT_EQ(lone.get(lone.weight), w) << step;
    ASSERT_EQ(lone.counts(), (UpdateCounts{updates, cancelled})) << step;
    lost += cancelled;
  }
  EXPECT_GT(lost, 0u);
}

// Nearest rounding loses what is below half a unit; one extra bit keeps what is at least a quarter.
TEST(UpdateRules, CountsWhatRoundingLoses) {
  OptimizerConfig config;
  const Values grad = {0, 0x1p-8f, 0x1.8p-9f, 0x1p-10f, -0x1.1p-8f, -0x1p-30f, 0x1p-7f, -0.0f};
  struct Expected {
    const char* storage;
    UpdateCounts counts;
  };
  // From 1 down a unit of bf16 is 2^-8, up 2^-7; of fp32 2^-24 and 2^-23.
  for (const Expected& one :
       {Expected{"bf16", {6, 2}}, {"bf16+1", {6, 2}}, {"bf16+16", {6, 1}}, {"fp32", {6, 1}}}) {
    Lone lone({config}, one.storage, "fp32", grad.size());
    lone.set(lone.weight, Values(grad.size(), 1.0f));
    lone.set(lone.grad, grad);
    lone.state.update = update_scalars(config, 0, 1);
    lone.run();
    EXPECT_EQ(lone.counts(), one.counts)
        << one.storage << ": " << lone.counts().updates << ", " << lone.counts().cancelled;
  }
}

}  // namespace
}  // namespace ulp::ref
