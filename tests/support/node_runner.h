// Runs a graph node by node, every tensor in memory of its own, without a plan: what tests compare
// kernels and plans with. On whatever device the backend has.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ulp/backend/kernel.h"
#include "ulp/backend/recorder.h"
#include "ulp/tensor/memory.h"

namespace ulp {

class NodeRunner {
 public:
  // Formats by tensor; tensors beyond them, and where they are none of its business (kept, sums),
  // are fp32. The graph must outlive the runner. Throws an Error if a node finds no kernel.
  NodeRunner(const Graph& graph, std::vector<TensorFormat> formats, const Backend& backend,
             const KernelChoice& choice = {}, const KernelOptions& options = {});

  // The value of a tensor, written in its format to nearest-even; read as decoded.
  void set(TensorId id, std::span<const float> values);
  void set_indices(TensorId id, std::span<const int32_t> values);
  std::vector<float> get(TensorId id) const;
  // The stored bytes.
  std::vector<uint8_t> bytes(TensorId id) const;
  // What a source reads; the values must outlive the runs.
  void feed(TensorId id, const void* values);

  // All nodes in order, or those of one phase. Range events are those of the last run.
  void run();
  void run(Phase phase);
  const EncodeStats& stats(TensorId id) const { return stats_[static_cast<size_t>(id.index)]; }
  // Every node that runs from now on records what it writes. On the host.
  void record(Recorder* recorder) { recorder_ = recorder; }

  StepState state;

 private:
  void run_nodes(const Phase* phase);
  void record_fp32(const Node& node);
  // To a device that is not the host: what a run finds beside the tensors.
  void take_there(RunContext& context);

  const Graph& graph_;
  Device& device_;
  Recorder* recorder_ = nullptr;
  Memory memory_;
  std::vector<TensorFormat> formats_;
  std::unique_ptr<PlanContext> plan_;
  std::vector<Block> blocks_;  // by tensor that has bytes of its own
  Block workspace_;
  // Of a device that is not the host.
  Block state_there_, stats_there_;
  std::vector<Block> feeds_there_;  // by tensor that is fed
  std::vector<const void*> feed_data_there_;
  std::vector<uint8_t*> data_;
  std::vector<const void*> feeds_;
  std::vector<EncodeStats> stats_;
  std::vector<std::unique_ptr<Task>> tasks_;  // by node; null for views
};

}  // namespace ulp
