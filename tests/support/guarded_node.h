// For the tests of this folder: runs single nodes with a kernel of one's choice. Tensors and
// workspace lie between guard bytes, which must be whole after every run, and the workspace starts
// out as garbage.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ulp/backend/kernel.h"

namespace ulp {

class Rig {
 public:
  // Tensors beyond `formats` are fp32. The graph must outlive the rig.
  Rig(const Graph& graph, std::vector<TensorFormat> formats, size_t workspace = size_t{64} << 20,
      Round round = Round::nearest_even);

  void set(TensorId id, std::span<const float> values);
  void set_indices(TensorId id, std::span<const int32_t> values);
  void set_bytes(TensorId id, std::span<const uint8_t> values);
  std::vector<float> get(TensorId id) const;
  std::vector<uint8_t> bytes(TensorId id) const;  // all that is stored
  const EncodeStats& stats(TensorId id) const { return stats_[static_cast<size_t>(id.index)]; }
  const UpdateCounts& updates(TensorId id) const { return updates_[static_cast<size_t>(id.index)]; }
  void feed(TensorId id, const void* values) { feeds_[static_cast<size_t>(id.index)] = values; }

  // Returns the workspace that it took. Reports a kernel that is missing or declines as a failure.
  size_t run(NodeId node, const KernelDef* kernel) { return run(std::vector<NodeId>{node}, kernel); }
  size_t run(const std::vector<NodeId>& roots, const KernelDef* kernel);
  // Several times what one run takes; seconds of the fastest.
  double time(NodeId node, const KernelDef* kernel, int runs = 5);

  std::string why_not(NodeId node, const KernelDef* kernel) const;

  // What else kernels are told; before a run.
  PlanContext& plan() { return plan_; }

  StepState state;

 private:
  Problem problem(const std::vector<NodeId>& roots) const { return {plan_, {}, roots, {}}; }
  RunContext context(uint8_t* workspace);

  const Graph& graph_;
  std::vector<TensorFormat> formats_;
  PlanContext plan_;
  std::vector<std::vector<uint8_t>> memory_;
  std::vector<uint8_t*> data_;
  std::vector<size_t> size_;
  std::vector<const void*> feeds_;
  std::vector<EncodeStats> stats_;
  std::vector<UpdateCounts> updates_;
};

// The kernel of that name for that operator; null.
const KernelDef* find_kernel(std::span<const KernelDef> kernels, std::string_view op, std::string_view name);

// Numbers of either sign and several magnitudes, the same for the same seed.
std::vector<float> test_values(size_t n, uint32_t seed, float scale = 1);

// Each value must be what rounding some number within `bound` of the exact one to the storage
// gives.
void expect_within(std::span<const float> values, std::span<const float> exact, std::span<const double> bound,
                   const Storage& storage, std::string_view what);

}  // namespace ulp
