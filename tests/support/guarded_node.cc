#include "tests/support/guarded_node.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "ulp/base/philox.h"
#include "ulp/numeric/codec.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

constexpr size_t kGuard = 128;
constexpr uint8_t kMark = 0xA5, kGarbage = 0xFF;  // floats of garbage are NaN

uint8_t* aligned(std::vector<uint8_t>& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kMemoryAlignment - address % kMemoryAlignment) % kMemoryAlignment + kGuard;
}

uint8_t* guarded(std::vector<uint8_t>& memory, size_t bytes, uint8_t fill) {
  memory.assign(bytes + 2 * kGuard + kMemoryAlignment, fill);
  uint8_t* data = aligned(memory);
  std::fill_n(data - kGuard, kGuard, kMark);
  std::fill_n(data + bytes, kGuard, kMark);
  return data;
}

bool whole(const uint8_t* data, size_t bytes) {
  for (size_t i = 1; i <= kGuard; ++i) {
    if (data[-static_cast<ptrdiff_t>(i)] != kMark || data[bytes + i - 1] != kMark) return false;
  }
  return true;
}

std::vector<TensorFormat> complete(const Graph& graph, std::vector<TensorFormat> formats) {
  formats.resize(graph.tensor_count(), {parse_storage("fp32"), {}});
  return formats;
}

}  // namespace

Rig::Rig(const Graph& graph, std::vector<TensorFormat> formats, size_t workspace, Round round)
    : graph_(graph),
      formats_(complete(graph, std::move(formats))),
      plan_{graph_, formats_, round, Overflow::saturate, workspace},
      memory_(graph.tensor_count()),
      feeds_(graph.tensor_count()),
      stats_(graph.tensor_count()),
      updates_(graph.tensor_count()) {
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    size_.push_back(tensor_bytes(graph.tensors()[i], formats_[i].storage));
    data_.push_back(guarded(memory_[i], size_[i], 0));
  }
}

void Rig::set(TensorId id, std::span<const float> values) {
  const auto i = static_cast<size_t>(id.index);
  const StorageSize size = storage_size(formats_[i].storage, values.size());
  encode(formats_[i].storage, {}, values, {data_[i], size.code_bytes},
         {reinterpret_cast<uint32_t*>(data_[i] + aligned_bytes(size.code_bytes)), size.side_words});
}

void Rig::set_indices(TensorId id, std::span<const int32_t> values) {
  std::memcpy(data_[static_cast<size_t>(id.index)], values.data(), values.size_bytes());
}

void Rig::set_bytes(TensorId id, std::span<const uint8_t> values) {
  std::memcpy(data_[static_cast<size_t>(id.index)], values.data(), values.size_bytes());
}

std::vector<float> Rig::get(TensorId id) const {
  const auto i = static_cast<size_t>(id.index);
  std::vector<float> values(graph_[id].elements());
  const StorageSize size = storage_size(formats_[i].storage, values.size());
  decode(formats_[i].storage, {data_[i], size.code_bytes},
         {reinterpret_cast<uint32_t*>(data_[i] + aligned_bytes(size.code_bytes)), size.side_words}, values);
  return values;
}

std::vector<uint8_t> Rig::bytes(TensorId id) const {
  const auto i = static_cast<size_t>(id.index);
  return {data_[i], data_[i] + size_[i]};
}

RunContext Rig::context(uint8_t* workspace) {
  RunContext context;
  context.data = data_;
  context.feeds = feeds_;
  context.state = &state;
  context.workspace = workspace;
  context.stats = stats_.data();
  context.updates = updates_.data();
  return context;
}

size_t Rig::run(const std::vector<NodeId>& roots, const KernelDef* kernel) {
  const Problem problem = this->problem(roots);
  const std::string reason = kernel == nullptr ? "there is no such kernel" : kernel->why_not(problem);
  if (!reason.empty()) {
    ADD_FAILURE() << problem.root().name << ": " << reason;
    return 0;
  }
  const std::unique_ptr<Task> task = kernel->make(problem);
  std::vector<uint8_t> memory;
  uint8_t* workspace = guarded(memory, task->workspace(), kGarbage);
  std::fill(stats_.begin(), stats_.end(), EncodeStats{});
  std::fill(updates_.begin(), updates_.end(), UpdateCounts{});
  task->run(context(workspace));
  EXPECT_TRUE(whole(workspace, task->workspace())) << problem.root().name << ": beyond its workspace";
  for (size_t i = 0; i < data_.size(); ++i) {
    EXPECT_TRUE(whole(data_[i], size_[i])) << problem.root().name << ": beyond " << graph_.tensors()[i].name;
  }
  return task->workspace();
}

double Rig::time(NodeId node, const KernelDef* kernel, int runs) {
  const std::unique_ptr<Task> task = kernel->make(problem({node}));
  std::vector<uint8_t> memory;
  uint8_t* workspace = guarded(memory, task->workspace(), 0);
  double best = 1e9;
  for (int i = 0; i <= runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    task->run(context(workspace));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i > 0) best = std::min(best, took.count());
  }
  return best;
}

std::string Rig::why_not(NodeId node, const KernelDef* kernel) const {
  return kernel->why_not(problem({node}));
}

const KernelDef* find_kernel(std::span<const KernelDef> kernels, std::string_view op, std::string_view name) {
  for (const KernelDef& kernel : kernels) {
    if (kernel.op == op && kernel.name == name) return &kernel;
  }
  return nullptr;
}

std::vector<float> test_values(size_t n, uint32_t seed, float scale) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const PhiloxWords words = philox({{static_cast<uint32_t>(i), seed, 0, 0}}, {{7, 11}});
    const float unit = static_cast<float>(static_cast<int32_t>(words.word[0])) * 0x1p-31f;
    values[i] = scale * std::ldexp(unit, -static_cast<int>(words.word[1] % 4));
  }
  return values;
}

void expect_within(std::span<const float> values, std::span<const float> exact, std::span<const double> bound,
                   const Storage& storage, std::string_view what) {
  ASSERT_EQ(values.size(), exact.size()) << what;
  std::vector<float> low(exact.size()), high(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    low[i] = static_cast<float>(exact[i] - bound[i]);
    high[i] = static_cast<float>(exact[i] + bound[i]);
  }
  if (const Plain* plain = std::get_if<Plain>(&storage)) {
    std::vector<uint8_t> codes(packed_bytes(plain->format.bits(), exact.size()));
    for (std::vector<float>* limit : {&low, &high}) {
      encode(plain->format, {}, *limit, codes);
      decode(plain->format, codes, *limit);
    }
  } else {
    // The statistics of a tensor move with its values, and all codes with them: by one, or from the
    // smallest to zero.
    const StorageSize size = storage_size(storage, exact.size());
    std::vector<uint8_t> codes(size.code_bytes);
    std::vector<uint32_t> side(size.side_words);
    std::vector<float> stored(exact.size());
    encode(storage, {}, exact, codes, side);
    decode(storage, codes, side, stored);
    float smallest = INFINITY;
    for (const float v : stored) smallest = v != 0 ? std::min(smallest, std::abs(v)) : smallest;
    for (size_t i = 0; i < exact.size(); ++i) {
      const float slack = std::abs(stored[i]) / 2 + smallest;
      low[i] = stored[i] - slack;
      high[i] = stored[i] + slack;
    }
  }
  size_t wrong = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (values[i] >= low[i] && values[i] <= high[i]) continue;
    if (++wrong <= 3) {
      ADD_FAILURE() << what << ": element " << i << " is " << values[i] << ", not in [" << low[i] << ", "
                    << high[i] << "], exact " << exact[i];
    }
  }
  EXPECT_EQ(wrong, 0u) << what;
}

}  // namespace ulp
