// What is decided before the first step: in which order nodes run, with which kernels, what is
// stored and where. A plan is a pure function of the graph, the formats and the options, and its
// bytes are those that running it takes.
//
// Three kinds of tensors are not stored. An elementwise result that only elementwise nodes and
// reductions read is computed inside them, if that moves fewer bytes. A copy that changes nothing
// is its input. An elementwise result overlays an input that nothing reads any more.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/backend/kernel.h"
#include "ulp/graph/graph.h"
#include "ulp/plan/layout.h"

namespace ulp {

struct PlanOptions {
  const Backend* backend = nullptr;
  KernelChoice kernels = {};
  KernelOptions compute = {};
  bool fuse = true;     // off: every node runs by itself and every tensor is stored
  bool overlap = true;  // off: no step runs on the side stream
  bool merge = true;    // off: no two steps are one task
  // No overlap, early preparation or merging that takes more memory.
  bool tight = false;
  bool fused_backward = false;  // update a parameter as soon as its gradient is complete
  int micro_batches = 1;
  std::vector<TensorId> results = {};  // read after the step: kept to its end
};

enum class Home : uint8_t {
  nowhere,  // computed inside its readers, or never
  state,    // outlives the step: weights, and gradient sums over micro-batches
  step,
};

struct TensorPlace {
  Home home = Home::nowhere;
  TensorId base = {};            // owner of its bytes; usually itself
  size_t offset = 0, bytes = 0;  // in the step arena
  int first = -1, last = -1;     // live range in steps
};

struct PlanStep {
  std::vector<NodeId> roots, inlined;
  const KernelDef* kernel = nullptr;
  std::string declined;  // why better kernels declined; "" if the best one took it
  std::unique_ptr<Task> task;
  Phase phase = Phase::forward;
  size_t workspace = 0;  // offset in the step arena
  // Runs before the task: what it and later steps have prepared, and which steps these are.
  std::unique_ptr<Task> preparation;
  std::vector<int> prepares;
  int live_until = 0;  // if above the next step's number: may run on the side stream until then
  // Offset in the step arena; none: the task prepares for itself, if at all.
  std::optional<size_t> prepared;
  // If two steps are merged (Backend::make_merged): the first's task does the work of both, the
  // second runs nothing.
  std::unique_ptr<Task> merged_task;
  bool merged = false;

  size_t workspace_bytes() const {
    return merged ? 0 : merged_task != nullptr ? merged_task->workspace() : task->workspace();
  }
};

// What the memory is used for at the peak. Gaps between tensors count as workspace.
struct PlanBytes {
  size_t weights = 0, optimizer = 0, activations = 0, gradients = 0, workspace = 0;
  size_t snapshot = 0;  // of weights and optimizer state, kept by whoever runs the plan
  size_t total() const { return weights + optimizer + activations + gradients + workspace + snapshot; }
};

class Plan {
 public:
  // The graph and the backend must outlive the plan. Throws an Error if a node finds no kernel.
  Plan(const Graph& graph, std::vector<TensorFormat> formats, const PlanOptions& options);

  const Graph& graph() const { return graph_; }
  const Backend& backend() const { return backend_; }
  const PlanContext& context() const { return *context_; }
  std::span<const TensorFormat> formats() const { return formats_; }
  std::span<const PlanStep> steps() const { return steps_; }
  std::span<const TensorId> results() const { return results_; }
  const TensorPlace& place(TensorId id) const { return places_[static_cast<size_t>(id.index)]; }
  const PlanBytes& bytes() const { return bytes_; }
  size_t step_bytes() const { return step_bytes_; }    // of the step arena
  size_t state_bytes() const { return state_bytes_; }  // of all state
  size_t sum_bytes() const { return sum_bytes_; }      // of that, sums over micro-batches
  size_t peak_bytes() const { return state_bytes_ + step_bytes_; }
  // The step at which most memory is in use.
  int peak_step() const { return peak_step_; }
  // A lower bound: what any layout of these tensors would need in the step arena.
  size_t step_bytes_bound() const { return step_bytes_bound_; }

 private:
  // Overlap and merging may grow the peak by 1 / kPeakSlack.
  static constexpr size_t kPeakSlack = 50;

  // The live ranges and buffers of tensors in the step arena.
  struct Lives {
    std::vector<TensorPlace> life;  // by owner of the bytes: first and last step
    std::vector<int> buffer_of;     // negative: none
    std::vector<Buffer> buffers;
  };

  void lay_out(const PlanOptions& options);
  Lives find_lives(const PlanOptions& options) const;
  // When a step runs: its number, or that of the step before if they are merged.
  int moment(size_t step) const { return static_cast<int>(step) - (steps_[step].merged ? 1 : 0); }
  std::vector<Buffer> with_workspaces(const std::vector<Buffer>& tensors) const;
  std::optional<size_t> merge_steps(const PlanOptions& options, Lives& lives);
  size_t lay_out_steps(const PlanOptions& options, const Lives& lives, std::optional<size_t> unmerged_peak,
                       std::vector<Buffer>& buffers);
  void overlap_steps(std::span<const TensorPlace> life, std::span<const int> buffer_of,
                     std::vector<Buffer>& buffers);
  void prepare_together(std::vector<Buffer>& buffers, size_t workspaces, bool early);
  bool writes_state_of(int writer, int reader) const;
  bool state_changes(int when, int reader) const;
  bool reads(size_t step, TensorId base) const;
  // Whether a step may report a tensor's range events, and whether it does so on every backend; and
  // whether it may report those that another's task reads.
  bool may_report(size_t step, TensorId id) const;
  bool surely_reports(size_t step, TensorId id) const;
  bool may_report_for(size_t writer, size_t reader) const;
  void check_ranges() const;

  const Graph& graph_;
  const Backend& backend_;
  std::vector<TensorFormat> formats_;
  std::vector<TensorId> bases_;  // by tensor: owner of its bytes
  std::vector<bool> inlined_;    // by tensor: computed inside a step and never stored
  std::unique_ptr<PlanContext> context_;
  std::vector<PlanStep> steps_;
  std::vector<TensorId> results_;
  std::vector<TensorPlace> places_;
  PlanBytes bytes_;
  size_t step_bytes_ = 0, state_bytes_ = 0, sum_bytes_ = 0, step_bytes_bound_ = 0;
  int peak_step_ = 0;
};

}  // namespace ulp
