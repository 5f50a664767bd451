#include "ulp/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/parallel.h"
#include "ulp/base/process.h"
#include "ulp/optim/schedule.h"
#include "ulp/run/export.h"
#include "ulp/run/idle.h"
#include "ulp/run/metric_line.h"
#include "ulp/run/run_folder.h"
#include "ulp/run/sensitivity.h"
#include "ulp/run/setup.h"
#include "ulp/runtime/registry.h"

namespace ulp {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// In TensorBoard accuracy has its whole name.
std::string plotted(const std::string& metric) { return metric == "acc" ? "accuracy" : metric; }

// Of the updates that were not zero, how many were cancelled.
double share_of(const UpdateCounts& counts) {
  return counts.updates == 0 ? 0
                             : static_cast<double>(counts.cancelled) / static_cast<double>(counts.updates);
}

// The last checkpoint of a run, or the best one where that is gone.
std::string checkpoint_in(const std::string& folder) {
  const std::string last = folder + "/last.safetensors";
  std::error_code error;
  return std::filesystem::exists(last, error) ? last : folder + "/best.safetensors";
}

// What plans take from a task.
struct Outline {
  explicit Outline(const LearningTask& task)
      : text(task.data_text()), training(task.training_shapes()), evaluation(task.evaluation_shapes()) {}
  bool operator==(const Outline&) const = default;

  std::string text;
  std::vector<BatchShape> training, evaluation;
};

}  // namespace

Trainer::Trainer(const RunConfig& config, Observer& observer, bool by_class)
    : config_(with_older_defaults(config, checkpoint_in(config.out))), observer_(observer) {
  check(config);
  if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
  start_threads();
  // What cannot fit is refused before the data is read, which may take minutes and gigabytes. Where
  // batches are made on the device, plans have numbers of the data in them and must wait for it.
  wanted_ = task_options(config_);
  wanted_.scores = by_class;
  task_ = wanted_.resident ? make_task(wanted_) : outline_task(wanted_);
  const Outline outline(*task_);
  plan();
  engine_->check_free(0);
  read_data();
  if (Outline(*task_) != outline) plan();  // the data is not what its kind is published to be
  train_ = task_->stream(Part::train);
  test_ = task_->stream(Part::test);
  meter_ = task_->meter();
  progress_.metric = task_->metrics().front().name;
  progress_.higher_is_better = task_->metrics().front().higher_is_better;
  total_steps_ = total_steps(config_, train_->batches());
  run_ = run_identity(config_, *task_, *engine_);
  stepper_ = std::make_unique<Stepper>(config_, *engine_, train_->batches());
  progress_.loss_scale = stepper_->scaler().state();
  rss_forgotten_ = forget_peak_resident();
  rss_start_ = resident_bytes();
  task_->keep_data(*engine_);
  engine_->allocate();
}

Trainer::~Trainer() = default;

void Trainer::plan() {
  EngineOptions options = engine_options(config_, *task_);
  options.sensitivities = [this] { return sensitivities(); };
  engine_.reset();
  engine_ = std::make_unique<Engine>(options);
  plan_task(*engine_, *task_);
}

void Trainer::read_data() {
  if (task_->made_up()) task_ = make_task(wanted_);
}

// Measured once: the file is the run's own from then on.
std::vector<double> Trainer::sensitivities() {
  const std::string file = path("sensitivity.json");
  if (std::error_code error; std::filesystem::exists(file, error)) return load_sensitivities(file).errors;
  read_data();
  observer_.on_note("measuring how much each group of tensors disturbs the gradient when it is stored low");
  const Sensitivities measured = measure_sensitivities(config_, *task_);
  save_sensitivities(file, measured);
  return measured.errors;
}

std::vector<MetricValue> Trainer::named(const std::vector<double>& values, Part part) const {
  std::vector<MetricValue> all;
  for (size_t i = 0; i < values.size(); ++i) {
    const Metric& metric = task_->metrics()[i];
    if (part == Part::test || metric.in_training)
      all.push_back({std::string(metric.name), values[i], metric.share});
  }
  return all;
}

std::string Trainer::path(std::string_view file) const { return config_.out + "/" + std::string(file); }

void Trainer::start(bool resume) {
  const std::string last = path("last.safetensors");
  // If the checkpoint cannot be inspected, the run must not take it for missing and begin again.
  std::error_code error;
  const bool saved = std::filesystem::exists(last, error);
  if (error) fail("train", "cannot read {}: {}", last, error.message());
  if (resume && saved) load(last, LoadFor::training);
  if (progress_.finished) return;
  const bool begins = !config_.init.empty() && !(resume && saved);
  if (begins) init_weights(*engine_, config_.init, config_.seed);
  if (progress_.step == 0) stepper_->measure_scale(*train_);
  // What may refuse comes before what changes a file.
  if (const std::string metrics = path("metrics.jsonl");
      progress_.step > 0 && !std::filesystem::exists(metrics, error)) {
    fail("train",
         "{} is gone, which has the {} steps up to {}: put it back; to go on without them make an empty file "
         "of "
         "that name",
         metrics, progress_.step, last);
  }
  open_ranges();
  cut_metrics(path("metrics.jsonl"), progress_.step, progress_.epochs_done);
  if (!config_.histograms.empty()) {
    histograms_ = std::make_unique<HistogramFile>(path("histograms.jsonl"), config_.histograms,
                                                  static_cast<uint64_t>(config_.histogram_every), *engine_,
                                                  progress_.step);
  }
  if (resume) keep_changes();
  metrics_ = std::make_unique<MetricsFile>(path("metrics.jsonl"));
  if (progress_.longer) {
    metrics_->write({{"event", "extend"}, {"step", progress_.step}, {"epochs", config_.epochs}});
    progress_.longer = false;
    save("last.safetensors");  // so that it is said once
    observer_.on_note(
        fmt::format("the run was finished after {} epochs and goes on to {}; its learning rate is that of {} "
                    "from here on",
                    progress_.epochs_done, config_.epochs, config_.epochs));
  }
  const uint64_t batches = train_->batches();
  if (config_.tensorboard) {
    // Of the step that the checkpoint is of, an epoch's end may be still to come.
    const bool epoch_done = progress_.step == std::min(progress_.epochs_done * batches, total_steps_);
    cut_events(config_.out, [&](std::string_view tag, uint64_t step) {
      const bool of_step = tag == "train/loss" || tag == "train/lr" || tag == "train/cancelled";
      return step < progress_.step || (step == progress_.step && (of_step || epoch_done));
    });
    events_ = std::make_unique<EventWriter>(config_.out);
  }
  train_->seek(static_cast<uint32_t>(progress_.step / batches), progress_.step % batches);

  StartReport report;
  report.model = config_.model;
  report.data = config_.data;
  report.out = config_.out;
  report.parameters = engine_->training_plan().graph().parameters();
  report.train_examples = train_->examples();
  report.test_examples = test_->examples();
  report.first_step = progress_.step;
  report.total_steps = total_steps_;
  report.steps_per_epoch = batches;
  report.bytes = engine_->planned_bytes();
  report.narrow = !engine_->computes_in_fp32();
  report.threads = thread_count();
  report.state_bytes_per_parameter = engine_->bytes_per_parameter();
  observer_.on_start(report);
  if (begins) save("last.safetensors");  // the file of weights may be gone when the run is resumed
  for (const std::string& note : task_->notes()) observer_.on_note(note);
  for (const std::string& note : arithmetic_notes(config_)) observer_.on_note(note);
  for (const std::string& note : idle_notes(config_, *engine_, batches, total_steps_))
    observer_.on_note(note);
  if (const unsigned cores = std::thread::hardware_concurrency();
      cores > 0 && report.threads > static_cast<int>(cores)) {
    observer_.on_note(fmt::format("{} threads on {} cores wait for each other: --threads {} is faster",
                                  report.threads, cores, cores));
  }
}

// What a resumed run may change: where the data lies, threads, more epochs. Kept once nothing can be
// refused any more: a mistake must not stand in the way of the next try.
void Trainer::keep_changes() const {
  const std::string file = path("config.toml");
  const RunConfig before = load_config(file);
  RunConfig kept = config_;
  kept.out = before.out;  // the folder may have moved
  kept.scales_s2fp8 = before.scales_s2fp8;
  kept.tables_dense = before.tables_dense;
  if (kept != before) write_file_atomically(file, config_text(kept));
}

Outcome Trainer::run(bool resume, const std::atomic<bool>& stop) {
  start(resume);
  if (progress_.finished) return Outcome::was_finished;
  started_ = epoch_started_ = now();
  const uint64_t batches = train_->batches();
  while (true) {
    // An epoch ends after its last step, also where the run stopped between the two.
    const bool complete = progress_.step > 0 && progress_.step > progress_.epochs_done * batches &&
                          (progress_.step % batches == 0 || progress_.step == total_steps_);
    if (complete && !end_epoch(stop)) return Outcome::interrupted;
    if (progress_.step == total_steps_) break;
    if (!step(stop)) return Outcome::interrupted;
  }
  finish();
  return Outcome::finished;
}

// False where it was stopped.
bool Trainer::step(const std::atomic<bool>& stop) {
  if (stop) {
    save("last.safetensors");
    return false;
  }
  const double begin = now();
  const FeedBatch& batch = train_->next();
  const double lr = rate(schedule_of(config_), optimizer_config(config_).lr, progress_.step,
                         train_->batches(), total_steps_);
  const double scale = stepper_->scaler().scale();
  const bool recorded = histograms_ && histograms_->wants(progress_.step + 1);
  if (recorded) engine_->record_next(histograms_->tensors());
  const StepResult result = stepper_->train(
      batch, lr, progress_, [&](const Outputs& outputs) { meter_->add(outputs, batch); },
      progress_.not_finite == 0);
  watch_loss(batch, result.mean());
  const std::vector<Promotion> promotions = stepper_->overflowed();
  const auto count = static_cast<double>(batch.shape.examples);
  progress_.epoch_loss += result.loss;
  progress_.epoch_weight += result.weight;
  epoch_examples_here_ += count;
  const double here = count / std::max(now() - begin, 1e-9);
  rate_ = rate_ == 0 ? here : 0.9 * rate_ + 0.1 * here;
  if (!rss_forgotten_) rss_peak_ = std::max(rss_peak_, resident_bytes());

  StepReport report;
  report.step = progress_.step;
  report.total_steps = total_steps_;
  report.steps_per_epoch = train_->batches();
  report.epoch = (progress_.step - 1) / report.steps_per_epoch + 1;
  report.step_in_epoch = (progress_.step - 1) % report.steps_per_epoch + 1;
  report.loss = result.mean();
  report.lr = lr;
  report.scale = scale;
  report.skipped = !result.updated;
  report.epoch_loss = progress_.epoch_loss / progress_.epoch_weight;
  report.epoch_metrics = named(meter_->values(), Part::train);
  report.examples_per_second = rate_;
  report.memory_bytes = engine_->memory().in_use();
  UpdateCounts lost;
  for (const UpdateCounts& counts : engine_->updates()) lost.merge(counts);
  report.cancelled = share_of(lost);
  const bool epoch_ends = progress_.step % train_->batches() == 0 || progress_.step == total_steps_;
  Json line = {
      {"event", "step"},       {"step", report.step},       {"loss", report.loss},          {"lr", report.lr},
      {"scale", report.scale}, {"skipped", report.skipped}, {"cancelled", report.cancelled}};
  // By weight once an epoch: all steps would fill the disk.
  if (epoch_ends) line["cancelled_by_weight"] = cancelled_by_weight();
  metrics_->write(line);
  if (events_) {
    events_->scalar("train/loss", report.step, static_cast<float>(report.loss), wall_time());
    events_->scalar("train/lr", report.step, static_cast<float>(report.lr), wall_time());
    events_->scalar("train/cancelled", report.step, static_cast<float>(report.cancelled), wall_time());
    events_->flush();
  }
  if (ranges_)
    ranges_->write(range_record(report), total_steps_, !promotions.empty() || !std::isfinite(report.loss));
  if (recorded) histograms_->write(report.step, engine_->recorded(), engine_->assignment());
  observer_.on_step(report);
  if (!promotions.empty()) promote(promotions);
  if (progress_.not_finite == 1) {
    observer_.on_note(
        fmt::format("the loss of step {} is {}: {}", report.step, report.loss, progress_.first_not_finite));
  }
  if (progress_.not_finite > 0) report_trouble();
  // Before the loss scale's own end, which a step whose loss is not finite counts for too.
  if (config_.stop_not_finite > 0 && progress_.not_finite >= static_cast<uint64_t>(config_.stop_not_finite))
    diverge();
  if (stepper_->scaler().stuck()) {
    save("last.safetensors");
    report_trouble();
    stepper_->check_scale(scale);
  }
  if (config_.checkpoint_every > 0 && progress_.step % static_cast<uint64_t>(config_.checkpoint_every) == 0 &&
      !epoch_ends) {
    save("last.safetensors");
  }
  return true;
}

// Of steps in a row whose loss is not finite the first one shows what went wrong.
void Trainer::watch_loss(const FeedBatch& batch, double loss) {
  if (std::isfinite(loss)) {
    progress_.not_finite = 0;
    progress_.first_not_finite.clear();
  } else if (++progress_.not_finite == 1) {
    progress_.first_not_finite = stepper_->first_not_finite(batch);
  }
}

// The run is finished: resumed, it would go on with the same numbers.
void Trainer::diverge() {
  const uint64_t since = progress_.step - progress_.not_finite + 1;
  progress_.diverged = fmt::format(
      "diverged: no loss from step {} to step {} is finite; at step {} {}: choose a lower --lr or formats "
      "with more range (--stop-not-finite 0 would go on)",
      since, progress_.step, since, progress_.first_not_finite);
  // Without a "step": whoever goes on from here cuts it off.
  metrics_->write(
      {{"event", "diverged"}, {"since", since}, {"until", progress_.step}, {"why", progress_.diverged}});
  progress_.finished = true;
  save("last.safetensors");
  throw Diverged(progress_.diverged);
}

Json Trainer::cancelled_by_weight() const {
  Json weights = Json::object();
  for (size_t i = 0; i < engine_->updates().size(); ++i) {
    const TensorInfo& tensor = engine_->graph().tensors()[i];
    if (tensor.kind == Kind::weight) weights[tensor.name] = share_of(engine_->updates()[i]);
  }
  return weights;
}

void Trainer::report_trouble() {
  if (troubled_ || !ranges_) return;
  troubled_ = true;
  observer_.on_trouble(config_.out);
}

bool Trainer::end_epoch(const std::atomic<bool>& stop) {
  const double trained = now() - epoch_started_;
  Evaluation evaluation;
  if (!evaluate_all(&stop, evaluation)) {
    save("last.safetensors");
    return false;
  }
  EpochReport report;
  report.epoch = progress_.epochs_done + 1;
  report.step = progress_.step;
  report.train_loss = progress_.epoch_loss / progress_.epoch_weight;
  report.train = named(meter_->values(), Part::train);
  report.test_loss = test_loss_ = evaluation.loss;
  report.test = evaluation.metrics;
  report.narrow = !engine_->computes_in_fp32();
  report.test_fp32 = evaluation.metrics_fp32;
  report.low_ratio = engine_->low_ratio();
  report.peak_bytes = engine_->memory().peak();
  report.seconds = now() - epoch_started_;
  report.examples_per_second = epoch_examples_here_ / std::max(trained, 1e-9);
  const Metric& score = task_->metrics().front();
  // An epoch that ends without a finite loss is never the best, whatever its weights happen to score.
  const bool none_yet = progress_.epochs_done == 0 || std::isnan(progress_.best);
  report.best = progress_.not_finite == 0 && std::isfinite(report.test_loss) &&
                (none_yet || score.better(report.test.front().value, progress_.best));
  Json line = {{"event", "epoch"}, {"epoch", report.epoch}, {"train_loss", report.train_loss}};
  for (const MetricValue& metric : report.train) line["train_" + metric.name] = metric.value;
  line["test_loss"] = report.test_loss;
  for (const MetricValue& metric : report.test) line["test_" + metric.name] = metric.value;
  for (const MetricValue& metric : report.test_fp32) line["test_" + metric.name + "_fp32"] = metric.value;
  line["low_ratio"] = report.low_ratio;
  line["peak_bytes"] = report.peak_bytes;
  line["seconds"] = report.seconds;
  line["examples_per_second"] = report.examples_per_second;
  name_metric(line, task_->metrics().front());
  metrics_->write(line);
  if (events_) {
    const auto plot = [&](const std::string& name, double value) {
      events_->scalar(name, report.step, static_cast<float>(value), wall_time());
    };
    for (const MetricValue& metric : report.train) plot("train/" + plotted(metric.name), metric.value);
    plot("test/loss", report.test_loss);
    for (const MetricValue& metric : report.test) plot("test/" + plotted(metric.name), metric.value);
    for (const MetricValue& metric : report.test_fp32)
      plot("test/" + plotted(metric.name) + "-fp32", metric.value);
    events_->flush();
  }
  progress_.epochs_done = report.epoch;
  progress_.epoch_loss = progress_.epoch_weight = 0;
  meter_->reset();
  progress_.last = report.test.front().value;
  if (report.best || none_yet)
    progress_.best = report.best ? progress_.last : std::numeric_limits<double>::quiet_NaN();
  progress_.finished = progress_.step == total_steps_;
  observer_.on_epoch(report);
  if (report.best) save("best.safetensors");
  // The last one after all else of the epoch: a run killed before it does the epoch's end again.
  if (!progress_.finished) save("last.safetensors");
  epoch_started_ = now();
  epoch_examples_here_ = 0;
  return true;
}

void Trainer::finish() {
  // A run may end before it has taken as many steps as it would be stopped after. Where only the
  // last step was bad and was skipped, its weights are good.
  if (progress_.not_finite > 0 && !std::isfinite(test_loss_) && config_.stop_not_finite > 0) diverge();
  if (rss_forgotten_) rss_peak_ = peak_resident_bytes();
  DoneReport report;
  const bool share = task_->metrics().front().share;
  report.best_test = {progress_.metric, progress_.best, share};
  report.final_test = {progress_.metric, progress_.last, share};
  report.peak_bytes = engine_->memory().peak();
  report.planned_peak_bytes = engine_->planned_peak_bytes();
  report.rss_start_bytes = rss_start_;
  report.rss_peak_bytes = rss_peak_;
  report.seconds = now() - started_;
  Json line = {{"event", "done"},
               {"best_test_" + progress_.metric, progress_.best},
               {"final_test_" + progress_.metric, progress_.last},
               {"peak_bytes", report.peak_bytes},
               {"planned_peak_bytes", report.planned_peak_bytes},
               {"rss_start_bytes", report.rss_start_bytes},
               {"rss_peak_bytes", report.rss_peak_bytes},
               {"seconds", report.seconds}};
  name_metric(line, task_->metrics().front());
  metrics_->write(line);
  // Only now is the run finished: killed before, it writes the line again.
  progress_.finished = true;
  save("last.safetensors");
  observer_.on_done(report);
}

void Trainer::load(const std::string& file, LoadFor use) {
  const PrepareState prepare = [&](const StepProgress& progress) -> State& {
    return stepper_->prepare(progress, file);
  };
  progress_ = load_run_checkpoint(file, run_, progress_.metric, prepare, use);
  progress_.higher_is_better = task_->metrics().front().higher_is_better;  // older files do not say it
  stepper_->restore(progress_);
  meter_->restore(progress_.epoch_metrics);
}

void Trainer::save(std::string_view file) {
  progress_.epoch_metrics = meter_->save();
  save_run_checkpoint(path(file), run_, engine_->state(), progress_, task_->facts());
  observer_.on_checkpoint(path(file), progress_.step);
}

Outcome train(const RunConfig& wanted, bool resume, Observer& observer, const std::atomic<bool>& stop) {
  check(wanted);
  if (!resume) refuse_idle_options(wanted);
  namespace fs = std::filesystem;
  const RunFolder claimed(wanted, resume);
  RunConfig config = wanted;
  config.out = claimed.path();
  const fs::path folder(config.out);
  const std::string last = (folder / "last.safetensors").string();
  std::error_code error;
  // As a sweep begins one: nothing has been done with the option yet.
  if (resume && !fs::exists(last, error)) refuse_idle_options(config);
  if (!resume) {
    // Of a run that never began: another configuration would measure something else.
    fs::remove(folder / "sensitivity.json", error);
    write_file_atomically((folder / "config.toml").string(), config_text(config));
  }
  // Asked before the data is looked for, which may be gone by now.
  if (resume && fs::exists(last, error)) {
    const bool finished = checkpoint_finished(last, run_text(config));
    if (const std::string why = checkpoint_divergence(last); !why.empty()) {
      if (finished) throw Diverged(why);
      fail("train",
           "{} has diverged, and more epochs would go on with numbers that are not finite: begin a new run "
           "with a "
           "lower --lr or formats with more range",
           config.out);
    }
    if (finished) return Outcome::was_finished;
  }
  Trainer trainer(config, observer);
  return trainer.run(resume, stop);
}

}  // namespace ulp
