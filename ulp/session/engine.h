// A model with its memory: the plans for every batch size of a run, the state they share, and the
// one arena they take turns in. Everything is planned and counted before the first step.
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
#include "ulp/precision/policy.h"
#include "ulp/runtime/executor.h"
#include "ulp/runtime/state.h"
#include "ulp/session/precision.h"
#include "ulp/session/resident.h"

namespace ulp {

struct EngineOptions {
  ModelRequest model;  // its batch is that of training
  OptimizerConfig optimizer;
  PrecisionOptions precision = {};
  std::string device = "cpu";  // see find_backend; reference has the plain loops
  std::string kernels = {};    // see KernelChoice
  KernelOptions compute = {};
  int64_t micro_batches = 1;  // divides the batch
  double clip_norm = 0;
  // Each parameter is updated as soon as its gradient is complete, and the gradient is freed.
  bool fused_backward = false;
  // With fused backward there is no point between the last gradient and the first update at which a
  // step could be checked. If it must be, gradients are computed twice, or the weights and their
  // state are copied to restore them. For the norm of gradients, which the first update needs, they
  // are always computed twice.
  enum class FusedOverflow : uint8_t { twice, snapshot };
  FusedOverflow fused_overflow_of = FusedOverflow::twice;
  // Whether a verdict may reject a step; none: never.
  std::function<bool(std::span<const CountedTensor>, const Assignment&)> may_skip = {};
  bool keep_gradients = false;  // of weights, to the end of a step: see Engine::gradient
  uint64_t seed = 0;
  // For the policy sensitivity:R without a file.
  std::function<std::vector<double>()> sensitivities = {};
};

// One batch as the loader makes it.
struct Examples32 {
  std::span<const float> images;    // (count, height, width, channels); none: keep_resident
  std::span<const int32_t> labels;  // (count)
  uint32_t epoch = 0;
  std::span<const uint32_t> numbers = {};  // (count), of the examples in their set
};
Examples32 examples_of(const Batch& batch);

struct BatchResult {
  double loss = 0;  // summed over the examples
  uint64_t correct = 0;
  bool updated = false;  // the weights have changed
};

class Engine {
 public:
  // Throws an Error for incompatible options.
  explicit Engine(const EngineOptions& options);

  // Plans for a number of examples; to be called for each that will occur, before allocate.
  // Evaluation is planned in the engine's formats and in fp32; in fp32 in pieces, so that it takes
  // no more memory than training.
  void plan_training(int64_t examples);
  void plan_evaluation(int64_t examples);
  // Keeps a data set in device memory; batches without images are then made from it, those of
  // training from its one part, those of evaluation from the other. Before allocate, and only if
  // ResidentSet::possible.
  void keep_resident(const ImageSet& set, const LoaderOptions& train, const LoaderOptions& test);
  // Allocates the state and the arena.
  void allocate();

  // Changes the formats: new plans, and a new arena if they need a larger one. Weights whose stored
  // format changes are rounded to it. To be called between steps, after allocate.
  void set_assignment(Assignment assignment);

  // What all plans together need: state, the largest arena, and what each keeps on a device other
  // than the host. After a change of formats, the maximum needed so far, including the change
  // itself.
  size_t planned_peak_bytes() const;
  // Of the plan that needs most.
  PlanBytes planned_bytes() const;
  // Of weights, with everything that is kept for them between steps.
  double bytes_per_parameter() const;
  const Memory& memory() const { return *memory_; }
  const Plan& training_plan() const;  // of the full batch
  State& state() { return *state_; }
  const Assignment& assignment() const { return assignment_; }
  // The policy's, before any change.
  const Assignment& first_assignment() const { return first_assignment_; }
  const ModelRequest& model() const { return options_.model; }
  // By weight: how it is updated and stored.
  const ParameterChoices& parameters() const { return parameters_; }
  // Whether some weights are stored in the format of their operand, and change with it.
  bool weights_follow() const;
  // Whether gradients are computed twice, and whether a snapshot is kept.
  bool makes_gradients_twice() const { return waiting_->twice; }
  bool keeps_snapshot() const { return waiting_->snapshot; }
  // Of the tensors that the papers count, at the full batch: the fraction of elements stored low.
  double low_ratio() const { return ulp::low_ratio(counted_, assignment_); }
  std::span<const CountedTensor> counted() const { return counted_; }

  // Inspects a step's range events, by tensor of the training graph, when its gradients are
  // complete, and returns whether the step counts. `loss` is that of the step, summed over its
  // examples.
  using Verdict = std::function<bool(double loss, const Graph& graph, std::span<const EncodeStats> stats)>;

  // What is known of a verdict beforehand, so that a device can continue without asking the host.
  enum class Known : uint8_t {
    nothing,
    accepts,              // every step
    accepts_no_overflow,  // every step but those with gradients_overflowed (ulp/backend/found_inf.h)
  };

  // One step: the gradient of the mean loss over the examples and, unless the verdict rejects it,
  // the update with the scalars of `step`. With fused backward no verdict is asked for unless the
  // options say that steps may be skipped. If a device decides by what is known of the verdict, the
  // verdict is called afterwards; a different answer is a std::logic_error.
  BatchResult train(const StepState& step, const Examples32& examples, const Verdict& verdict = {},
                    Known known = Known::nothing);
  // Of the last step: what was reported, by tensor of the training graph, and how many elements
  // were written.
  const Graph& graph() const { return training_plan().graph(); }
  std::span<const EncodeStats> stats() const { return stats_; }
  std::span<const uint64_t> elements() const { return elements_; }
  // The same for weights: how many updates there were, and how many of them rounding cancelled.
  std::span<const UpdateCounts> updates() const { return updates_; }
  // The gradient of a weight in the last step, as the update reads it, without the loss scale.
  // Requires keep_gradients.
  std::vector<float> gradient(const std::string& weight) const;

  // Times the steps of training plans, until called with null or formats change: see profile.h.
  void time_plan(PlanClock* clock);

  BatchResult evaluate(const StepState& step, const Examples32& examples);
  // With all tensors in fp32, except the weights as they are stored.
  BatchResult evaluate_fp32(const StepState& step, const Examples32& examples);
  // Whether that would be the same.
  bool computes_in_fp32() const;

 private:
  // A graph of one batch size, its plan, and its executor.
  struct Program {
    ClassifierGraph graph;
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Executor> executor;
  };
  using Programs = std::map<int64_t, std::unique_ptr<Program>>;  // by examples
  // Training; evaluation in the formats of an assignment; or evaluation with everything computed in
  // fp32 from the weights as they are stored under it.
  enum class Use : uint8_t { training, evaluation, evaluation_fp32 };
  std::unique_ptr<Program> make_program(int64_t examples, Use use, const Assignment& assignment) const;
  void add_program(Programs& programs, int64_t examples, Use use, const Assignment& assignment) const;
  void plan_evaluation_fp32(int64_t examples);
  Assignment choose_assignment(const Graph& whole) const;
  PeakUse peak_of(const Assignment& assignment) const;
  size_t arena_bytes() const;
  size_t snapshot_bytes() const;
  size_t device_bytes() const;
  // How gradients are checked before updates under an assignment: by computing them twice, by a
  // snapshot, or not at all.
  struct Waiting {
    bool twice = false, snapshot = false;
  };
  Waiting waiting_for(const Assignment& assignment) const;
  void bind();
  void merge_updates(const Program& program, bool first_step, bool updated);
  // How a program runs over its examples: the phases from forward up to the last, and who checks.
  struct Course {
    Phase last = Phase::forward;
    bool whole = false;       // all phases in one launch on a device, without a stop for a verdict
    bool checks_inf = false;  // then: checked by the device
  };
  Course course_of(const Program& program, bool asked, Known known) const;
  static void feed(Program& program, const Examples32& examples, size_t first);
  static BatchResult run(Program& program, const StepState& step, const Course& course);

  const EngineOptions options_;
  const Backend& backend_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<State> state_;
  std::vector<CountedTensor> counted_;
  Assignment first_assignment_, assignment_;
  ParameterChoices parameters_;
  std::optional<Waiting> waiting_;  // of the run, once its first assignment is chosen
  std::unique_ptr<Snapshot> snapshot_;
  Programs training_, evaluation_, evaluation_fp32_;
  std::map<int64_t, int64_t> pieces_;  // by examples: how many are evaluated in fp32 at a time
  std::vector<EncodeStats> stats_;     // of the step, over its micro-batches
  std::vector<uint64_t> elements_;     // by tensor: elements that the step wrote
  std::vector<UpdateCounts> updates_;  // by tensor
  const Program* last_run_ = nullptr;  // of training
  std::unique_ptr<ResidentSet> resident_;
  size_t resident_bytes_ = 0;
  Block arena_;
  uint32_t next_step_ = 0;   // keys the random words of weights converted before it
  size_t earlier_peak_ = 0;  // before the last change of formats, and during it
};

}  // namespace ulp
