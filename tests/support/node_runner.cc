#include "tests/support/node_runner.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/tensor/stored.h"

namespace ulp {
NodeRunner::NodeRunner(const Graph& graph, std::vector<TensorFormat> formats, const Backend& backend,
                       const KernelChoice& choice, const KernelOptions& options)
    : graph_(graph),
      device_(device_of(backend)),
      memory_(device_),
      formats_(std::move(formats)),
      blocks_(graph.tensor_count()),
      feeds_there_(graph.tensor_count()),
      feed_data_there_(graph.tensor_count()),
      data_(graph.tensor_count()),
      feeds_(graph.tensor_count()),
      stats_(graph.tensor_count()) {
  formats_.resize(graph.tensor_count(), {parse_storage("fp32"), {}});
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const Kind kind = graph[id].kind;
    if (kind == Kind::saved || kind == Kind::grad_sum || kind == Kind::fed)
      formats_[i] = {parse_storage("fp32"), {}};
    formats_[i] = formats_[static_cast<size_t>(graph.format_of(id).index)];
    if (graph[id].alias) continue;
    blocks_[i] = memory_.allocate(tensor_bytes(graph[id], formats_[i].storage));
  }
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    data_[i] = blocks_[static_cast<size_t>(graph.bytes_of(id).index)].data();
  }
  plan_.reset(new PlanContext{graph, formats_, options});
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
  workspace_ = memory_.allocate(workspace);
  if (device_.on_host()) return;
  state_there_ = memory_.allocate(sizeof(StepState));
  stats_there_ = memory_.allocate(sizeof(EncodeStats) * stats_.size());
}

void NodeRunner::set(TensorId id, std::span<const float> values) {
  const Storage& storage = formats_[static_cast<size_t>(id.index)].storage;
  std::vector<uint8_t> made(tensor_bytes(graph_[id], storage));
  const StoredParts parts = stored_parts(storage, made.data(), values.size());
  encode(storage, {}, values, parts.codes, parts.side);
  device_.upload(data_[static_cast<size_t>(id.index)], made.data(), made.size());
}

void NodeRunner::set_indices(TensorId id, std::span<const int32_t> values) {
  device_.upload(data_[static_cast<size_t>(id.index)], values.data(), values.size_bytes());
}

std::vector<float> NodeRunner::get(TensorId id) const {
  const Storage& storage = formats_[static_cast<size_t>(id.index)].storage;
  std::vector<uint8_t> stored = bytes(id);
  std::vector<float> values(graph_[id].elements());
  const StoredParts parts = stored_parts(storage, stored.data(), values.size());
  decode(storage, parts.codes, parts.side, values);
  return values;
}

std::vector<uint8_t> NodeRunner::bytes(TensorId id) const {
  std::vector<uint8_t> bytes(tensor_bytes(graph_[id], formats_[static_cast<size_t>(id.index)].storage));
  device_.download(bytes.data(), data_[static_cast<size_t>(id.index)], bytes.size());
  return bytes;
}

void NodeRunner::feed(TensorId id, const void* values) { feeds_[static_cast<size_t>(id.index)] = values; }

void NodeRunner::run() { run_nodes(nullptr); }

void NodeRunner::run(Phase phase) { run_nodes(&phase); }

void NodeRunner::take_there(RunContext& context) {
  device_.upload(state_there_.data(), &state, sizeof state);
  device_.upload(stats_there_.data(), stats_.data(), sizeof(EncodeStats) * stats_.size());
  context.state = reinterpret_cast<const StepState*>(state_there_.data());
  context.stats = reinterpret_cast<EncodeStats*>(stats_there_.data());
  for (size_t i = 0; i < feeds_.size(); ++i) {
    if (feeds_[i] == nullptr) continue;
    const size_t bytes = sizeof(float) * graph_.tensors()[i].elements();
    if (feeds_there_[i].bytes() == 0) feeds_there_[i] = memory_.allocate(bytes);
    device_.upload(feeds_there_[i].data(), feeds_[i], bytes);
    feed_data_there_[i] = feeds_there_[i].data();
  }
  context.feeds = feed_data_there_;
}

// Nobody rounds them, so whoever looks must read them.
void NodeRunner::record_fp32(const Node& node) {
  for (const TensorId id : node.out) {
    const auto i = static_cast<size_t>(id.index);
    if (!recorder_->wants(id) || !is_fp32(formats_[i].storage)) continue;
    recorder_->add(id, {reinterpret_cast<const float*>(data_[i]), graph_[id].elements()});
  }
}

void NodeRunner::run_nodes(const Phase* phase) {
  std::fill(stats_.begin(), stats_.end(), EncodeStats{});
  RunContext context;
  context.data = data_;
  context.feeds = feeds_;
  context.state = &state;
  context.workspace = workspace_.data();
  context.stats = stats_.data();
  context.recorder = recorder_;
  if (!device_.on_host()) take_there(context);
  const auto recording = device_.record([&](Stream stream) {
    context.stream = stream;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (tasks_[i] == nullptr || (phase != nullptr && graph_.nodes()[i].phase != *phase)) continue;
      tasks_[i]->run(context);
      if (recorder_ != nullptr) record_fp32(graph_.nodes()[i]);
    }
  });
  recording->launch();
  device_.wait();
  if (!device_.on_host())
    device_.download(stats_.data(), stats_there_.data(), sizeof(EncodeStats) * stats_.size());
}

}  // namespace ulp
