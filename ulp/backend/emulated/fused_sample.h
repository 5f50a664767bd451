// Patterns of the fused elementwise kernels as graphs of their own, with values to try them on. For
// tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/backend/cuda/kernels.h"
#include "ulp/base/philox.h"
#include "ulp/graph/ops.h"
#include "ulp/tensor/stored.h"

namespace ulp::cuda {

inline const std::map<std::string, const OpDef*>& ops() {
  static const std::map<std::string, const OpDef*> all = {
      {"relu", &kActivation<elementwise::Relu>},
      {"relu_grad", &kActivationGrad<elementwise::Relu>},
      {"add", &kAdd},
      {"sum", &kSum},
      {"batch_norm", &kBatchNorm},
      {"batch_norm_grad", &kBatchNormGrad},
      {"copy", &kCopy},
      {"batch_stats", &kBatchStats},
      {"batch_norm_sums", &kBatchNormSums},
  };
  return all;
}

// A graph of one pattern.
class Sample {
 public:
  Graph graph;
  Shape shape;
  std::vector<TensorId> leaves, channel_values, weights;
  std::vector<NodeId> nodes;  // the root is the last

  Sample(const std::string& pattern, const Shape& domain) : shape(domain) {
    size_t at = 0;
    parse(pattern, at);
  }

 private:
  TensorId tensor(const std::string& what, const Shape& of, Kind kind) {
    TensorInfo info;
    info.name = what + std::to_string(names_++);
    info.shape = of;
    info.kind = kind;
    return graph.add_tensor(info);
  }

  TensorId parse(const std::string& text, size_t& at) {
    std::string name;
    while (at < text.size() && (std::isalpha(text[at]) != 0 || text[at] == '_')) name += text[at++];
    if (name == "x") {
      leaves.push_back(tensor("leaf", shape, Kind::activation));
      return leaves.back();
    }
    Node node;
    node.op = ops().at(name);
    node.name = name + std::to_string(names_++);
    while (text[at++] != ')') {
      if (text[at] != ')') node.in.push_back(parse(text, at));
    }
    const Shape channels{shape.back()};
    std::vector<std::string> more;
    if (name == "batch_norm") more = {"gamma", "beta", "mean", "variance"};
    if (name == "batch_norm_grad") more = {"gamma", "mean", "variance", "sum", "product"};
    if (name == "batch_norm_sums") more = {"mean", "variance"};
    for (const std::string& what : more) {
      const bool weight = what == "gamma" || what == "beta";
      node.in.push_back(tensor(what, channels, weight ? Kind::weight : Kind::saved));
      (weight ? weights : channel_values).push_back(node.in.back());
    }
    if (!more.empty()) {
      node.attrs.set("epsilon", 1e-5);
      node.attrs.set("rows", static_cast<double>(shape.rows()));
    }
    const bool reduces = node.op->form == Form::reduction;
    for (int i = 0; i < (reduces ? 2 : 1); ++i) {
      node.out.push_back(tensor("out", reduces ? channels : shape, reduces ? Kind::saved : Kind::activation));
    }
    const TensorId out = node.out[0];
    nodes.push_back(graph.add_node(node));
    return out;
  }

  int names_ = 0;
};

// Tensors with their own bytes, each between guards.
class Bench {
 public:
  Bench(const Sample& sample, std::vector<TensorFormat> formats, Round round,
        Overflow overflow = Overflow::infinity)
      : sample_(sample), formats_(std::move(formats)), plan_{sample.graph, formats_, round} {
    plan_.options.overflow = overflow;
    for (size_t i = 0; i < sample.graph.tensor_count(); ++i) {
      size_.push_back(tensor_bytes(sample.graph.tensors()[i], formats_[i].storage));
      memory_.push_back(std::make_unique<uint64_t[]>(size_[i] / 8 + 3 * kGuard));
      data_.push_back(aligned(memory_[i].get()));
      std::memset(data_[i] - kGuard, 0xA5, size_[i] + 2 * kGuard);
    }
    state.seed = 77;
    state.step = 5;
    state.micro_batch = 1;
  }

  void set(TensorId id, const std::vector<float>& values) {
    const auto i = static_cast<size_t>(id.index);
    const StoredParts parts = stored_parts(formats_[i].storage, data_[i], values.size());
    encode(formats_[i].storage, {}, values, parts.codes, parts.side);
  }
  std::vector<uint8_t> bytes(TensorId id) const {
    const auto i = static_cast<size_t>(id.index);
    return {data_[i], data_[i] + size_[i]};
  }
  void lie_over(TensorId out, TensorId in) {
    data_[static_cast<size_t>(out.index)] = data_[static_cast<size_t>(in.index)];
  }
  const Storage& storage(TensorId id) const { return formats_[static_cast<size_t>(id.index)].storage; }

  void run(const std::vector<NodeId>& inlined, const std::vector<NodeId>& roots,
           const std::vector<NodeId>& silent = {},
           std::span<const KernelDef> kernels = fused_elementwise_kernels()) {
    const std::unique_ptr<Task> task = make(inlined, roots, silent, kernels);
    ASSERT_NE(task, nullptr);
    run(*task);
  }

  std::unique_ptr<Task> make(const std::vector<NodeId>& inlined, const std::vector<NodeId>& roots,
                             const std::vector<NodeId>& silent,
                             std::span<const KernelDef> kernels = fused_elementwise_kernels()) const {
    const Problem problem{plan_, inlined, roots, silent};
    const KernelDef* kernel = nullptr;
    for (const KernelDef& one : kernels) {
      if (one.op == problem.root().op->name) kernel = &one;
    }
    EXPECT_EQ(kernel->why_not(problem), "");
    return kernel->why_not(problem).empty() ? kernel->make(problem) : nullptr;
  }

  void run(Task& made) {
    Task* const task = &made;
    std::vector<uint64_t> workspace(task->workspace() / 8 + 3 * kGuard, 0xFFFFFFFFFFFFFFFFu);
    uint8_t* space = aligned(workspace.data());
    stats.resize(data_.size());
    RunContext context;
    context.data = data_;
    context.state = &state;
    context.workspace = space;
    context.stats = stats.data();
    task->run(context);
    for (size_t i = 0; i < kGuard; ++i) ASSERT_EQ(space[task->workspace() + i], 0xFF);
    for (size_t t = 0; t < data_.size(); ++t) {
      for (size_t i = 1; i <= kGuard; ++i) {
        ASSERT_EQ(*(data_[t] - i), 0xA5);
        ASSERT_EQ(data_[t][size_[t] + i - 1], 0xA5);
      }
    }
  }

  StepState state;
  std::vector<EncodeStats> stats;  // by tensor

 private:
  static constexpr size_t kGuard = 64;
  static uint8_t* aligned(uint64_t* memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    return reinterpret_cast<uint8_t*>(memory) + (kMemoryAlignment - address % kMemoryAlignment) + kGuard;
  }

  const Sample& sample_;
  std::vector<TensorFormat> formats_;
  PlanContext plan_;
  std::vector<size_t> size_;
  std::vector<std::unique_ptr<uint64_t[]>> memory_;
  std::vector<uint8_t*> data_;
};

inline std::vector<float> values(size_t n, uint32_t seed, bool specials) {
  std::vector<float> made(n);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {NAN, -NAN, kInfinity, -kInfinity, 0.0f, -0.0f, 1e-40f, -3e-6f, 3e38f, 1e30f};
  for (size_t i = 0; i < n; ++i) {
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), seed, 0, 0}}, {{1, 2}});
    const float unit = static_cast<float>(words.word[0]) * 0x1p-31f - 1;
    // Magnitudes over thirty binades: some vanish and some overflow in narrow formats.
    made[i] =
        unit * std::exp2(static_cast<float>(words.word[1] % 8) - (words.word[1] / 8 % 8 == 0 ? 20.0f : 2.0f));
    if (specials && words.word[2] % 16 == 0) made[i] = special[words.word[3] % std::size(special)];
  }
  return made;
}

inline void fill(Bench& bench, const Sample& sample, bool specials) {
  uint32_t seed = 1;
  for (const TensorId id : sample.leaves) bench.set(id, values(sample.shape.elements(), seed++, specials));
  const auto channels = static_cast<size_t>(sample.shape.back());
  for (const auto* ids : {&sample.weights, &sample.channel_values}) {
    for (const TensorId id : *ids) {
      std::vector<float> some = values(channels, seed++, false);
      if (sample.graph[id].name.starts_with("variance")) {
        for (float& x : some) x = std::abs(x) * 100;
      }
      bench.set(id, some);
    }
  }
}

}  // namespace ulp::cuda
