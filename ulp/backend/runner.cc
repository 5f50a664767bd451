#include "ulp/backend/runner.h"

#include <algorithm>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

uint8_t* align(std::vector<uint8_t>& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kMemoryAlignment - address % kMemoryAlignment) % kMemoryAlignment;
}

}  // namespace

NodeRunner::NodeRunner(const Graph& graph, std::vector<TensorFormat> formats, const Backend& backend,
                       const KernelChoice& choice, Round round, Overflow overflow,
                       std::optional<FloatFormat> accumulator)
    : graph_(graph),
      formats_(std::move(formats)),
      memory_(graph.tensor_count()),
      data_(graph.tensor_count()),
      feeds_(graph.tensor_count()),
      stats_(graph.tensor_count()) {
  formats_.resize(graph.tensor_count(), {parse_storage("fp32"), {}});
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const Kind kind = graph[id].kind;
    if (kind == Kind::kept || kind == Kind::grad_sum || kind == Kind::label)
      formats_[i] = {parse_storage("fp32"), {}};
    formats_[i] = formats_[static_cast<size_t>(graph.format_of(id).index)];
    if (graph[id].alias) continue;
    memory_[i].resize(tensor_bytes(graph[id], formats_[i].storage) + kMemoryAlignment);
  }
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    data_[i] = align(memory_[static_cast<size_t>(graph.bytes_of(id).index)]);
  }
  plan_.reset(new PlanContext{graph, formats_, round, overflow});
  plan_->accumulator = accumulator;
  size_t workspace = 0;
  for (size_t i = 0; i < graph.node_count(); ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    tasks_.emplace_back();
    if (graph[id].op->form == Form::view) continue;
    const Problem problem{*plan_, {}, {id}, {}};
    std::string reasons;
    const KernelDef* kernel = choice.pick(backend, problem, &reasons);
    if (kernel == nullptr)
      fail("backend", "no kernel for {} ({}): {}", graph[id].name, graph[id].op->name, reasons);
    tasks_.back() = kernel->make(problem);
    workspace = std::max(workspace, tasks_.back()->workspace());
  }
  workspace_.resize(workspace + kMemoryAlignment);
}

void NodeRunner::set(TensorId id, std::span<const float> values) {
  const TensorInfo& tensor = graph_[id];
  const Storage& storage = formats_[static_cast<size_t>(id.index)].storage;
  const StorageSize size = storage_size(storage, tensor.elements());
  uint8_t* data = data_[static_cast<size_t>(id.index)];
  encode(storage, {}, values, {data, size.code_bytes},
         {reinterpret_cast<uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words});
}

void NodeRunner::set_indices(TensorId id, std::span<const int32_t> values) {
  std::memcpy(data_[static_cast<size_t>(id.index)], values.data(), values.size_bytes());
}

std::vector<float> NodeRunner::get(TensorId id) const {
  const TensorInfo& tensor = graph_[id];
  const Storage& storage = formats_[static_cast<size_t>(id.index)].storage;
  const StorageSize size = storage_size(storage, tensor.elements());
  uint8_t* data = data_[static_cast<size_t>(id.index)];
  std::vector<float> values(tensor.elements());
  decode(storage, {data, size.code_bytes},
         {reinterpret_cast<uint32_t*>(data + aligned_bytes(size.code_bytes)), size.side_words}, values);
  return values;
}

std::span<const uint8_t> NodeRunner::bytes(TensorId id) const {
  const TensorInfo& tensor = graph_[id];
  return {data_[static_cast<size_t>(id.index)],
          tensor_bytes(tensor, formats_[static_cast<size_t>(id.index)].storage)};
}

void NodeRunner::feed(TensorId id, const void* values) { feeds_[static_cast<size_t>(id.index)] = values; }

void NodeRunner::run() { run_nodes(nullptr); }

void NodeRunner::run(Phase phase) { run_nodes(&phase); }

void NodeRunner::run_nodes(const Phase* phase) {
  std::fill(stats_.begin(), stats_.end(), EncodeStats{});
  RunContext context;
  context.data = data_;
  context.feeds = feeds_;
  context.state = &state;
  context.workspace = align(workspace_);
  context.stats = stats_.data();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i] == nullptr || (phase != nullptr && graph_.nodes()[i].phase != *phase)) continue;
    tasks_[i]->run(context);
  }
}

}  // namespace ulp
