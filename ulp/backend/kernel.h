// What a backend is. It has a list of kernels for each operator, best first; the last one takes any
// problem. A kernel sees a problem: shapes, storages and attributes, no data. It declines and says
// why, or it makes a task. A task knows its workspace before it runs and allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/options.h"
#include "ulp/backend/step_state.h"
#include "ulp/graph/format.h"
#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"
#include "ulp/numeric/storage.h"
#include "ulp/optim/rule.h"
#include "ulp/tensor/device.h"

namespace ulp {

// Bytes of a tensor: codes and what is kept beside them, each aligned.
size_t tensor_bytes(const TensorInfo& tensor, const Storage& storage);

class Recorder;

// What every kernel of a plan shares.
struct PlanContext {
  const Graph& graph;
  std::span<const TensorFormat> formats;  // by tensor; of no meaning for int32 and bytes
  KernelOptions options = {};
  // By tensor, the one whose bytes it has: of views, and of copies that change nothing. None: each
  // its own.
  std::span<const TensorId> bases = {};

  TensorId base_of(TensorId id) const { return bases.empty() ? id : bases[static_cast<size_t>(id.index)]; }
};

// A node to run, with the elementwise nodes that are inlined: their outputs are rounded in
// registers and never stored. Several roots are neighbouring nodes of one kind in one task, as
// optimizer steps are.
struct Problem {
  const PlanContext& plan;
  std::vector<NodeId> inlined = {};  // in graph order
  std::vector<NodeId> roots = {};
  // Inlined nodes whose range events another task already reports.
  std::vector<NodeId> silent = {};

  const Graph& graph() const { return plan.graph; }
  const Node& root() const { return plan.graph[roots[0]]; }
  const TensorInfo& tensor(TensorId id) const { return plan.graph[id]; }
  const Shape& shape(TensorId id) const { return plan.graph[id].shape; }
  const TensorFormat& format(TensorId id) const { return plan.formats[static_cast<size_t>(id.index)]; }
};

// What a task gets when it runs. On a device other than the host all pointers lead into the
// device's memory; only the arrays `data` and `feeds` themselves are on the host, while the task
// runs. There the task launches its work into the stream and adds to `stats`, and nobody calls
// `report`.
class RunContext {
 public:
  // By tensor, the address of its bytes; null if it has none. A source (source.h) finds what the
  // caller feeds in `feeds`: fp32, int32 or bytes. A node that makes a batch of resident data
  // (batch.h) finds that data.
  std::span<uint8_t* const> data;
  std::span<const void* const> feeds;
  const StepState* state = nullptr;
  uint8_t* workspace = nullptr;  // the task's own bytes, aligned
  // What was prepared for the task (Task::prepared). Null: the task prepares it in its workspace.
  uint8_t* prepared = nullptr;
  // Of a task that prepares for others: the address for each of them, in their order.
  std::span<uint8_t* const> places;

  uint8_t* bytes(TensorId id) const { return data[static_cast<size_t>(id.index)]; }
  template <typename T>
  T* as(TensorId id) const {
    return reinterpret_cast<T*>(bytes(id));
  }
  // Adds range events to those that the tensor has in this step. Any thread may call it.
  void report(TensorId id, const EncodeStats& stats) const;

  // Adds how many updates of a weight there were and how many were cancelled to this step's counts.
  void report(TensorId id, const UpdateCounts& counts) const;

  EncodeStats* stats = nullptr;     // by tensor
  UpdateCounts* updates = nullptr;  // by tensor; null where nobody asks
  Recorder* recorder = nullptr;     // on the host, of steps that are recorded
  Stream stream = nullptr;          // null on the host
};

class Task {
 public:
  explicit Task(size_t workspace = 0) : workspace_(workspace) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  size_t workspace() const { return workspace_; }
  // How many bytes at the workspace's end depend on state alone. They can be made before the task's
  // turn, together with those of other tasks (Backend::make_preparation). Then they lie elsewhere,
  // and the workspace ends before them.
  virtual size_t prepared() const { return 0; }
  // Tensors whose range events it reads, such as the largest magnitude, from RunContext::stats. The
  // plan has them reported before the task runs, by whatever step it is that writes the tensor, as
  // if they were inputs.
  virtual std::vector<TensorId> reads_range_of() const { return {}; }
  virtual void run(const RunContext& context) = 0;
  // A choice that a user may want to know, in words; "" if there was none.
  virtual std::string note() const { return ""; }

 protected:
  size_t workspace_;
};

struct KernelDef {
  std::string_view op;    // the operator of the root
  std::string_view name;  // "onednn", "fused", "reference" ...
  // Why it cannot take the problem; "" where it can.
  std::string (*why_not)(const Problem& problem);
  std::unique_ptr<Task> (*make)(const Problem& problem);
  // Its output may lie where an input of the same shape and storage lies: each element is read
  // before it is written.
  bool in_place = false;
  // It may run on a side stream beside the steps after it, until one of them reads what it writes
  // or overwrites what it reads.
  bool side_stream = false;
};

// For kernels that say no more than this: why they decline inlined nodes, or also several roots.
std::string takes_no_inlined(const Problem& problem);
std::string takes_one_node(const Problem& problem);
// Makes a task from a problem alone.
template <typename Made>
std::unique_ptr<Task> make_one(const Problem& problem) {
  return std::make_unique<Made>(problem);
}

struct Backend {
  std::string_view name;
  std::vector<KernelDef> kernels;  // for each operator best first
  bool fuses = false;              // some kernels take problems with inlined nodes
  // Whether one task may take many running statistics, or many copies that finish gradients.
  bool merges = false;
  Device* device = nullptr;  // where its tensors live; null: the host
  // Of a device that is not the host: a task, without a workspace, that sets StepState::skip in the
  // device's memory, to which RunContext::state leads, where these gradients have overflowed
  // (found_inf.h), the first of the sums being the loss.
  std::unique_ptr<Task> (*make_found_inf)(const PlanContext& plan, std::span<const TensorId> gradients,
                                          TensorId sums) = nullptr;
  // Makes a task without workspace that prepares for all of these at once (Task::prepared). They
  // must outlive it. Null: each prepares for itself.
  std::unique_ptr<Task> (*make_preparation)(std::span<Task* const> tasks) = nullptr;
  // Merges two tasks that run one right after the other into one, with the same bits. The merged
  // task may write the second's results while it still reads the first's tensors; it reads each
  // element before it overwrites it. The two must outlive it. Null if it cannot.
  std::unique_ptr<Task> (*make_merged)(Task& first, Task& second) = nullptr;
};

inline Device& device_of(const Backend& backend) {
  return backend.device == nullptr ? host_device() : *backend.device;
}

// Sets the choice that a KernelChoice of "" means in this process. "" means the best kernels, as at
// the start.
void set_default_kernels(std::string text);

// Which kernel a user wants for which operator: "conv2d=reference,relu=fused", "*=reference", ""
// for the default.
class KernelChoice {
 public:
  KernelChoice() = default;
  // Throws an Error for text that is no such list, or a name that no kernel of the backend has.
  KernelChoice(std::string_view text, const Backend& backend);

  // The first kernel of the backend that takes the problem, of the wanted name if there is one.
  // Null where none does; then `reasons` says why each declined.
  const KernelDef* pick(const Backend& backend, const Problem& problem, std::string* reasons = nullptr) const;

 private:
  std::vector<std::pair<std::string, std::string>> wanted_;
};

}  // namespace ulp
