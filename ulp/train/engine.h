// A model with its memory: the plans for every batch size that a run meets, the state they share, and the one arena they
// take turns in. All of it is planned and counted before the first step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "ulp/backend/kernel.h"
#include "ulp/models/model.h"
#include "ulp/optim/optimizer.h"
#include "ulp/plan/plan.h"
#include "ulp/precision/assignment.h"
#include "ulp/train/executor.h"
#include "ulp/train/state.h"

namespace ulp {

struct EngineOptions {
  ModelRequest model;  // its batch is that of training
  OptimizerConfig optimizer;
  std::string policy = "fp32";
  std::string device = "cpu";  // cpu, or reference: the plain loops
  std::string kernels = {};    // see KernelChoice
  size_t workspace = size_t{64} << 20;
  int64_t micro_batches = 1;  // divides the batch
  double clip_norm = 0;
  bool fused_backward = false;
  uint64_t seed = 0;
};

// One batch as the loader makes it.
struct Examples32 {
  std::span<const float> images;    // (count, height, width, channels)
  std::span<const int32_t> labels;  // (count)
};

struct BatchResult {
  double loss = 0;  // summed over the examples
  uint64_t correct = 0;
  bool updated = false;  // the weights have changed
};

class Engine {
 public:
  // Throws an Error for options that do not go together.
  explicit Engine(const EngineOptions& options);

  // Plans for a number of examples; to be called for each that will come, before allocate.
  void plan_training(int64_t examples);
  void plan_evaluation(int64_t examples);
  // The state, and the arena.
  void allocate();

  // What all plans together need: state and the largest arena.
  size_t planned_peak_bytes() const;
  // Of the plan that needs most.
  PlanBytes planned_bytes() const;
  const Memory& memory() const { return *memory_; }
  const Plan& training_plan() const;  // of the full batch
  State& state() { return *state_; }
  const Assignment& assignment() const { return assignment_; }
  // Of the tensors that the papers count, at the full batch: the fraction of elements stored low.
  double low_ratio() const { return ulp::low_ratio(counted_, assignment_); }
  std::span<const CountedTensor> counted() const { return counted_; }

  // Looks at a step's range events, by tensor of the training graph, when its gradients are complete: whether it counts.
  using Verdict = std::function<bool(const Graph& graph, std::span<const EncodeStats> stats)>;

  // A step: the gradient of the mean loss over the examples, and, unless the verdict is against it, the update with the
  // scalars of `step`. With fused backward there is no moment to ask at, and none is.
  BatchResult train(const StepState& step, const Examples32& examples, const Verdict& verdict = {});
  BatchResult evaluate(const StepState& step, const Examples32& examples);

 private:
  // A graph of one batch size, its plan, and what runs it.
  struct Program {
    ClassifierGraph graph;
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Executor> executor;
  };
  std::unique_ptr<Program> make_program(int64_t examples, Mode mode);
  BatchResult run(Program& program, const StepState& step, const Examples32& examples, size_t first,
                  Phase last);

  const EngineOptions options_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<State> state_;
  std::vector<CountedTensor> counted_;
  Assignment assignment_;
  std::map<int64_t, std::unique_ptr<Program>> training_, evaluation_;  // by examples
  std::vector<EncodeStats> stats_;                                     // of the step, over its micro-batches
  Block arena_;
};

// The backend of a name: cpu, reference. Throws an Error for another.
const Backend& find_backend(std::string_view device);

}  // namespace ulp
