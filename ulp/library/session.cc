#include "ulp/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/threads_kept.h"
#include "ulp/library/feed_check.h"
#include "ulp/library/session_text.h"
#include "ulp/library/settings.h"
#include "ulp/optim/schedule.h"
#include "ulp/run/scaling.h"
#include "ulp/run/setup.h"
#include "ulp/run/stepper.h"

namespace ulp {
namespace {

// What a loss scale is measured on: the one batch that there is yet.
class OneBatch : public BatchStream {
 public:
  explicit OneBatch(const FeedBatch& batch) : batch_(batch) {}
  const FeedBatch& next() override { return batch_; }
  void seek(uint32_t, uint64_t) override {}
  size_t examples() const override { return static_cast<size_t>(batch_.shape.examples); }
  uint64_t batches() const override { return 1; }

 private:
  const FeedBatch& batch_;
};

EngineOptions engine_options(const RunConfig& config, const BuildFunction& build, const BatchShape& batch) {
  EngineOptions options = ulp::engine_options(config);
  options.build = build;
  options.batch = batch;
  return options;
}

// Runs a step. If it throws after the caller has changed the batch, for example to an index that is
// not in the table, the error names that change and not its consequence.
template <typename Step>
StepResult during(const FeedCheck& unchanged, const Step& step) {
  try {
    return step();
  } catch (const Error&) {
    unchanged.check();
    throw;
  }
}

}  // namespace

class Session::Body {
 public:
  Body(const BuildFunction& build, const SessionOptions& options)
      : options_(options),
        config_(config_of(options)),
        threads_(config_.threads > 0 ? static_cast<int>(config_.threads) : thread_count()),
        starting_(threads_),
        engine_(engine_options(config_, build, options.batch)),
        stepper_(config_, engine_, options.epoch_steps) {
    progress_.loss_scale = stepper_.scaler().state();
    engine_.plan_training(options.batch);
    for (const BatchShape& shape : options.training) {
      if (shape.examples > options.batch.examples) {
        fail("session",
             "SessionOptions::training has a shape of {} examples, but SessionOptions::batch, the largest, "
             "has {}",
             shape.examples, options.batch.examples);
      }
      engine_.plan_training(shape);
      trained_.insert(shape);
    }
    trained_.insert(options.batch);
    const std::vector<BatchShape> one = {options.batch};
    for (const BatchShape& shape : options.evaluation.empty() ? one : options.evaluation)
      engine_.plan_evaluation(shape, options.evaluates_fp32);
    run_ = fmt::format("{}; formats {}; network {:016x}", session_text(config_, options),
                       assignment_digest(engine_.first_assignment()),
                       graph_fingerprint(build_network(build, options.batch, Mode::training).graph));
    if (engine_.updates_by_rows()) run_ += kTablesByRows;
    if (leaves_s2fp8_unscaled(config_, engine_.counted(), engine_.first_assignment())) run_ += kUnscaled;
    starting_.reset();
  }

  // Whatever needs the weights calls it.
  Engine& ready() {
    if (busy_) fail("session", "a reader of outputs must not call the session: wait until the step is done");
    const ThreadsKept own(threads_);
    if (!ready_) engine_.allocate();
    ready_ = true;
    return engine_;
  }
  void keep_resident(Mode mode, const std::string& node, std::span<const uint8_t> bytes) {
    if (ready_) fail("session", "data is kept on the device before the first step, not after it");
    const std::string_view what = mode == Mode::training ? "training" : "inference";
    const std::optional<size_t> needed = engine_.resident_bytes_of(mode, node);
    if (!needed) fail("session", "no node '{}' of the network reads resident data in {}", node, what);
    if (bytes.size() != *needed)
      fail("session", "'{}' reads {} bytes of resident data, got {}", node, *needed, bytes.size());
    if (kept_.contains({mode, node})) fail("session", "'{}' has its data for {} already", node, what);
    engine_.keep_resident(mode, node, bytes);
    kept_.insert({mode, node});
    resident_ += bytes.size();
  }

  double scheduled_rate() const {
    const uint64_t total = config_.steps > 0 || config_.epochs > 0
                               ? total_steps(config_, options_.epoch_steps)
                               : progress_.step + 1;
    return rate(schedule_of(config_), optimizer_config(config_).lr, progress_.step, options_.epoch_steps,
                total);
  }

  StepResult train(const FeedBatch& given, double lr, const OutputReader& read) {
    ready();
    const ThreadsKept own(threads_);
    if (given.shape.examples > 0 && !trained_.contains(given.shape)) {
      fail("session", "training is not planned for a batch of ({}): name it in SessionOptions::training",
           batch_shape_text(given.shape));
    }
    const FeedBatch batch = given;  // the arrays are the caller's, the list of them is not
    const FeedCheck unchanged(batch);
    if (progress_.step == 0) {
      OneBatch first(batch);
      stepper_.measure_scale(first);
    }
    const double scale = stepper_.scaler().scale();
    Reading reading(*this, read);
    const StepResult result =
        during(unchanged, [&] { return stepper_.train(batch, lr, progress_, reading.reader()); });
    const std::vector<Promotion> promotions = stepper_.overflowed();
    remember_reports();
    stepper_.promote(promotions, progress_);
    for (const Promotion& one : promotions) {
      promotions_.push_back(
          {progress_.step, one.tensor, storage_name(one.from), storage_name(one.to), one.overflow_ratio});
    }
    reading.finish();
    unchanged.check();
    stepper_.check_scale(scale);
    return result;
  }

  StepResult evaluate(const FeedBatch& given, bool fp32, const OutputReader& read) {
    ready();
    const ThreadsKept own(threads_);
    const FeedBatch batch = given;
    const FeedCheck unchanged(batch);
    if (fp32 && !options_.evaluates_fp32) {
      fail("session", "evaluation in fp32 is not planned: set SessionOptions::evaluates_fp32");
    }
    const StepState state = evaluation_state(config_, progress_.step);
    Reading reading(*this, read);
    const StepResult result = during(unchanged, [&] {
      return fp32 ? engine_.evaluate_fp32(state, batch, reading.reader())
                  : engine_.evaluate(state, batch, reading.reader());
    });
    reading.finish();
    unchanged.check();
    return result;
  }

  void save(const std::string& path) { save_checkpoint(path, run_, ready().state(), progress_); }
  void load(const std::string& path) {
    ready();
    const ThreadsKept own(threads_);
    check_same_network(path);
    progress_ = load_checkpoint(path, run_as_saved_in(path), [&](const StepProgress& progress) -> State& {
      return stepper_.prepare(progress, path);
    });
    stepper_.restore(progress_);
    promotions_.clear();
  }

  SessionMemory memory() const {
    const PlanBytes bytes = engine_.planned_bytes();
    SessionMemory use;
    use.weights = bytes.weights;
    use.optimizer = bytes.optimizer;
    use.activations = bytes.activations;
    use.gradients = bytes.gradients;
    use.workspace = bytes.workspace;
    use.snapshot = bytes.snapshot;
    use.resident = resident_;
    use.planned_peak = engine_.planned_peak_bytes();
    use.measured_peak = ready_ ? engine_.memory().peak() : 0;
    use.low_ratio = engine_.low_ratio();
    use.bytes_per_parameter = engine_.bytes_per_parameter();
    return use;
  }

  std::vector<TensorReport> tensors() const {
    std::vector<TensorReport> all;
    for (const CountedTensor& tensor : engine_.counted()) {
      if (!engine_.graph().find(tensor.name)) continue;
      TensorReport report;
      report.name = tensor.name;
      report.kind = kind_name(tensor.kind);
      report.elements = tensor.elements;
      if (const auto found = reports_.find(tensor.name); found != reports_.end()) report = found->second;
      report.format = storage_name(engine_.assignment().storage_of(tensor.name));
      all.push_back(std::move(report));
    }
    return all;
  }

  // A weight or a running statistic.
  const StateSlot& slot(const std::string& name) {
    const auto& slots = ready().state().slots();
    const auto found = slots.find(name);
    if (found == slots.end() || (found->second.kind != Kind::weight && found->second.kind != Kind::statistic))
      fail("session", "the network has no weight '{}': it has {}", name, fmt::join(names(), ", "));
    return found->second;
  }
  std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const auto& [name, slot] : ready().state().slots()) {
      if (slot.kind == Kind::weight || slot.kind == Kind::statistic) all.push_back(name);
    }
    return all;
  }
  void set(const std::string& name, std::span<const float> values) {
    const StateSlot& to = slot(name);
    if (values.size() != to.shape.elements()) {
      fail("session", "'{}' has {} elements ({}), got {}", name, to.shape.elements(), shape_text(to.shape),
           values.size());
    }
    engine_.state().assign(name, values, config_.seed, static_cast<uint32_t>(progress_.step));
  }

  const RunConfig& config() const { return config_; }
  const StepProgress& progress() const { return progress_; }
  const Stepper& stepper() const { return stepper_; }
  const Engine& engine() const { return engine_; }
  const std::vector<PromotionReport>& promotions() const { return promotions_; }

 private:
  // The caller's reader during a step. The step goes on whatever it throws, so that it is never done
  // by half.
  class Reading {
   public:
    Reading(Body& body, const OutputReader& read) : body_(body), read_(read) { body_.busy_ = true; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    ~Reading() { body_.busy_ = false; }

    OutputReader reader() {
      if (!read_) return {};
      return [this](const Outputs& outputs) {
        try {
          if (!thrown_) read_(outputs);
        } catch (...) {
          thrown_ = std::current_exception();
        }
      };
    }
    void finish() {
      body_.busy_ = false;
      if (thrown_) std::rethrow_exception(thrown_);
    }

   private:
    Body& body_;
    const OutputReader& read_;
    std::exception_ptr thrown_;
  };

  // Builds that made all rows of tables gave the same bits where rows are made by default.
  std::string run_as_saved_in(const std::string& path) const {
    const bool chosen = config_.table_gradients != "auto";
    return chosen || checkpoint_run(path).find(kTablesByRows) != std::string::npos
               ? run_
               : without(run_, kTablesByRows);
  }

  // A fingerprint says that networks differ; who reads it wants to know in what.
  void check_same_network(const std::string& path) {
    const auto settings = [](const std::string& run) { return run.substr(0, run.find("; formats ")); };
    const std::string saved = checkpoint_run(path);
    const auto bare = [](std::string run) {
      return without(without(std::move(run), kUnscaled), kTablesByRows);
    };
    if (bare(saved) == bare(run_) || settings(saved) != settings(run_)) return;
    check_tensors(path, engine_.state());
    fail("checkpoint",
         "{} is of another network: its weights have the names and shapes of this one, but operators, their "
         "attributes or formats differ",
         path);
  }

  // Before promotion makes new plans, whose counts begin again.
  void remember_reports() {
    const Graph& graph = engine_.graph();
    for (const CountedTensor& tensor : engine_.counted()) {
      const TensorId id = graph.find(tensor.name);
      if (!id) continue;
      const auto at = static_cast<size_t>(id.index);
      const EncodeStats& stats = engine_.stats()[at];
      TensorReport& report = reports_[tensor.name];
      report = {tensor.name,
                std::string(kind_name(tensor.kind)),
                {},
                tensor.elements,
                engine_.elements()[at],
                stats.overflow,
                stats.underflow,
                stats.nan,
                stats.amax};
    }
  }

  const SessionOptions options_;
  const RunConfig config_;
  const int threads_;                    // of every step, whoever calls it
  std::optional<ThreadsKept> starting_;  // while the session is made
  Engine engine_;
  Stepper stepper_;
  StepProgress progress_;
  std::string run_;  // what its checkpoints must be of
  bool ready_ = false, busy_ = false;
  std::set<BatchShape> trained_;
  std::set<std::pair<Mode, std::string>> kept_;
  size_t resident_ = 0;
  std::vector<PromotionReport> promotions_;
  std::map<std::string, TensorReport> reports_;  // of the last step
};

Session::Session(BuildFunction build, SessionOptions options)
    : body_(std::make_unique<Body>(build, options)) {}
Session::~Session() = default;
Session::Body& Session::body() const {
  if (!body_) fail("session", "this session was moved from: use the one that it was moved to");
  return *body_;
}
Session::Session(Session&& other) noexcept = default;
Session& Session::operator=(Session&& other) noexcept = default;

void Session::keep_resident(Mode mode, const std::string& node, std::span<const uint8_t> bytes) {
  body().keep_resident(mode, node, bytes);
}

StepResult Session::train(const FeedBatch& batch, const OutputReader& read) {
  return body().train(batch, learning_rate(), read);
}
StepResult Session::train_at(double lr, const FeedBatch& batch, const OutputReader& read) {
  if (!(lr >= 0) || lr > std::numeric_limits<float>::max())
    fail("session", "a learning rate is a finite fp32 number from 0, got {}", lr);
  return body().train(batch, lr, read);
}
StepResult Session::evaluate(const FeedBatch& batch, const OutputReader& read) {
  return body().evaluate(batch, false, read);
}
StepResult Session::evaluate_fp32(const FeedBatch& batch, const OutputReader& read) {
  return body().evaluate(batch, true, read);
}

void Session::save(const std::string& path) { body().save(path); }
void Session::load(const std::string& path) { body().load(path); }

uint64_t Session::step() const { return body().progress().step; }
uint64_t Session::updates() const { return body().progress().updates; }
double Session::learning_rate() const { return body().scheduled_rate(); }
double Session::loss_scale() const { return body().stepper().scaler().scale(); }
const std::vector<PromotionReport>& Session::promotions() const { return body().promotions(); }

SessionMemory Session::memory() const { return body().memory(); }
size_t Session::parameters() const { return body().engine().graph().parameters(); }
std::vector<TensorReport> Session::tensors() const { return body().tensors(); }
std::string Session::plan() const { return plan_text(body().config(), body().engine(), memory(), tensors()); }

std::vector<float> Session::weight(const std::string& name) const { return body().slot(name).values(); }
void Session::set_weight(const std::string& name, std::span<const float> values) { body().set(name, values); }
std::vector<std::string> Session::weights() const { return body().names(); }

}  // namespace ulp
