// A network with its memory: the plans for every shape of a run, the state they share, and the one
// arena they take turns in. Everything is planned and counted before the first step.
//
// Graphs of other shapes and modes share state, formats and range events by the names of tensors.
// The shape of EngineOptions is the largest: it decides the assignment, and a tensor that only
// another shape has is an Error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ulp/backend/kernel.h"
#include "ulp/optim/optimizer.h"
#include "ulp/plan/plan.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/policy.h"
#include "ulp/runtime/executor.h"
#include "ulp/runtime/state.h"
#include "ulp/session/network.h"
#include "ulp/session/precision.h"
#include "ulp/session/recording.h"

namespace ulp {

struct EngineOptions {
  BuildFunction build;
  BatchShape batch;  // of training: the largest
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
  // Gradients of tables that a step looks rows up in, once: of all rows, or of those alone, and then
  // no other row is updated. automatic: of those alone where the others would not change anyway.
  enum class TableGradients : uint8_t { automatic, dense, rows };
  TableGradients table_gradients = TableGradients::automatic;
  bool keep_gradients = false;  // of weights, to the end of a step: see Engine::gradient
  uint64_t seed = 0;
  // Instead of what the policy would choose, with the formats of single tensors in it.
  std::optional<Assignment> assignment = {};
  // For the policy sensitivity:R without a file.
  std::function<std::vector<double>()> sensitivities = {};
};

class Engine {
 public:
  // Throws an Error for incompatible options.
  explicit Engine(const EngineOptions& options);

  // Plans for a shape; to be called for each that will occur, before allocate. Evaluation is
  // planned in the engine's formats and, if wanted, in fp32; in fp32 in pieces, so that it takes no
  // more memory than training.
  void plan_training(const BatchShape& shape);
  void plan_evaluation(const BatchShape& shape, bool in_fp32 = true);
  // Copies an array into the backend's memory, where the node of that name reads it in graphs of
  // that mode (ulp/graph/ops/batch.h). Before allocate. Throws an Error for numbers that a reader of
  // a planned graph does not take; allocate does so for graphs that are planned later.
  void keep_resident(Mode mode, std::string node, std::span<const uint8_t> bytes);
  // How many bytes that must be; none if no planned graph of the mode has such a node.
  std::optional<size_t> resident_bytes_of(Mode mode, std::string_view node) const;
  // Throws an Error if the device lacks memory for the plans and so many bytes more.
  void check_free(size_t more) const;
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
  const Plan& training_plan() const;  // of the largest shape
  State& state() { return *state_; }
  const Assignment& assignment() const { return assignment_; }
  // The policy's, before any change.
  const Assignment& first_assignment() const { return first_assignment_; }
  const BatchShape& batch() const { return options_.batch; }
  // By weight: how it is updated and stored.
  const ParameterChoices& parameters() const { return parameters_; }
  // Whether some weights are stored in the format of their operand, and change with it.
  bool weights_follow() const;
  // Whether the gradient of some table has only the rows that were looked up.
  bool updates_by_rows() const;
  // Whether gradients are computed twice, and whether a snapshot is kept.
  bool makes_gradients_twice() const { return waiting_->twice; }
  bool keeps_snapshot() const { return waiting_->snapshot; }
  // Of the tensors that the papers count, at the largest shape: the fraction of elements stored
  // low.
  double low_ratio() const { return ulp::low_ratio(counted_, assignment_); }
  std::span<const CountedTensor> counted() const { return counted_; }

  // Inspects a step's range events, by tensor of the training graph, when its gradients are
  // complete, and returns whether the step counts. `loss` is the sum of the step's terms.
  using Verdict = std::function<bool(double loss, const Graph& graph, std::span<const EncodeStats> stats)>;

  // What is known of a verdict beforehand, so that a device can continue without asking the host.
  enum class Known : uint8_t {
    nothing,
    accepts,              // every step
    accepts_no_overflow,  // every step but those with gradients_overflowed (ulp/backend/found_inf.h)
  };

  // One step: the gradient of the mean loss and, unless the verdict rejects it, the update with the
  // scalars of `step`. The outputs of each micro-batch are handed to `read`. With fused backward no
  // verdict is asked for unless the options say that steps may be skipped. If a device decides by
  // what is known of the verdict, the verdict is called afterwards; a different answer is a
  // std::logic_error.
  StepResult train(const StepState& step, const FeedBatch& batch, const Verdict& verdict = {},
                   Known known = Known::nothing, const OutputReader& read = {});
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

  // A tensor with numbers that are not finite, and how many of them.
  struct NotFinite {
    std::string tensor;
    Kind kind = Kind::activation;
    uint64_t nan = 0, infinite = 0;  // where only its writing reported it, at least so many
    uint64_t elements = 0;           // 0: the same
  };
  // The first such tensor of a step: a weight as it is now, or else what forward computes from the
  // weights. Runs forward again, with the same bits, so it needs the weights of before the step; it
  // moves running statistics. Between steps. A tensor that is computed inside its readers is never
  // stored: there the first that is stored is found. None on a device other than the host.
  std::optional<NotFinite> find_not_finite(const StepState& step, const FeedBatch& batch);
  // Of the last step, the first activation whose writing reported such a number. Tensors in fp32
  // report nothing.
  std::optional<NotFinite> reported_not_finite() const;
  bool can_look() const;
  // Whether it can look, and a verdict is asked for before a weight changes.
  bool asks_before_updates() const;

  // Records these tensors of graph() in the next training step alone. On the host. What it recorded
  // is valid until the next call.
  void record_next(std::span<const TensorId> tensors) {
    recording_.emplace(graph().tensor_count(), tensors);
    records_next_ = true;
  }
  const StepRecording& recorded() const { return *recording_; }

  // Times the steps of training plans, until called with null or formats change: see profile.h.
  void time_plan(PlanClock* clock);

  StepResult evaluate(const StepState& step, const FeedBatch& batch, const OutputReader& read = {});
  // With all tensors in fp32, except the weights as they are stored.
  StepResult evaluate_fp32(const StepState& step, const FeedBatch& batch, const OutputReader& read = {});
  // Whether that would be the same.
  bool computes_in_fp32() const;

 private:
  // A graph of one shape, its plan, and its executor.
  struct Program {
    BatchShape shape;
    BuiltNetwork net;
    std::vector<TensorId> kept;  // outputs that can be read after a run
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Executor> executor;
    // Of training, by tensor: its number in the graph of the largest shape, to which events belong;
    // of a later time step that of the first.
    std::vector<int32_t> slots;

    const Graph& graph() const { return net.graph; }
  };
  using Programs = std::map<BatchShape, std::unique_ptr<Program>>;
  // Training; evaluation in the formats of an assignment; or evaluation with everything computed in
  // fp32 from the weights as they are stored under it.
  enum class Use : uint8_t { training, evaluation, evaluation_fp32 };
  BuiltNetwork build(const BatchShape& shape, Mode mode) const;
  // Whether the gradient of a table is to have only the rows that were looked up, at most `count`.
  bool has_rows_alone(const TensorInfo& table, int64_t count,
                      const std::map<std::string, Storage>& stored) const;
  std::unique_ptr<Program> make_program(const BatchShape& shape, Use use, const Assignment& assignment) const;
  void add_program(Programs& programs, const BatchShape& shape, Use use, const Assignment& assignment) const;
  void match_names(Program& program, bool training) const;
  void plan_evaluation_fp32(const BatchShape& shape);
  // Of one micro-batch of the largest shape.
  BatchShape piece() const { return options_.batch.of(options_.batch.examples / options_.micro_batches); }
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
  // Throws an Error if a batch, run in pieces of `whole` examples, does not fit: before any of it runs.
  static void check_batch(const Programs& programs, const FeedBatch& batch, int64_t whole,
                          std::string_view what);
  static void feed(Program& program, const FeedBatch& batch, int64_t first);
  // The sum of the weights of a batch's loss, or the number of its terms.
  static double weight_of(const Program& program, const FeedBatch& batch);
  static Program& find_program(const Programs& programs, const BatchShape& shape, std::string_view what);
  // Returns the sum of the loss.
  static double run(Program& program, const StepState& step, const Course& course, int64_t first,
                    const OutputReader& read);

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
  std::map<BatchShape, int64_t> pieces_;  // by shape: how many examples are evaluated in fp32 at a time
  std::vector<EncodeStats> stats_;        // of the step, over its micro-batches
  std::vector<uint64_t> elements_;        // by tensor: elements that the step wrote
  std::vector<UpdateCounts> updates_;     // by tensor
  const Program* last_run_ = nullptr;     // of training
  std::optional<StepRecording> recording_;
  std::optional<Recorder> recorder_;  // of a micro-batch
  bool records_next_ = false;
  struct Resident {
    Mode mode;
    std::string node;
    size_t bytes;
    Block block;
    std::optional<IndexRange> numbers = {};  // of what could be numbers
  };
  std::vector<Resident> resident_;
  size_t resident_bytes_ = 0;
  // What the build function made so far, by shape and mode: it must not change its mind.
  mutable std::map<std::pair<BatchShape, Mode>, std::pair<uint64_t, uint64_t>> fingerprints_;
  Block arena_;
  uint32_t next_step_ = 0;   // keys the random words of weights converted before it
  size_t earlier_peak_ = 0;  // before the last change of formats, and during it
};

}  // namespace ulp
