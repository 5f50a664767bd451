// A training run: task, engine, evaluation each epoch, checkpoints, metrics. Everything that decides
// a bit follows from the configuration. A run that was stopped anywhere and resumed ends with the
// weights of one that was not.
//
// In the run's folder: config.toml (before anything else), metrics.jsonl, last.safetensors, best.safetensors,
// ranges.bin where tensors are narrow, sensitivity.json where the policy measured it, and events.*
// with --tensorboard.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/io/metrics.h"
#include "ulp/io/tensorboard.h"
#include "ulp/precision/promotion.h"
#include "ulp/run/checkpoint.h"
#include "ulp/run/config.h"
#include "ulp/run/histograms.h"
#include "ulp/run/observer.h"
#include "ulp/run/ranges.h"
#include "ulp/run/stepper.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {

enum class Outcome : uint8_t { finished, interrupted, was_finished };

// A run whose loss is not a finite number any more. It is finished: going on would change nothing.
class Diverged : public Error {
 public:
  explicit Diverged(const std::string& why) : Error("train", why) {}
};
constexpr int kDivergedCode = 3;  // what `ulp train` then exits with

struct Evaluation {
  double loss = 0;
  std::vector<MetricValue> metrics;       // in the run's formats
  std::vector<MetricValue> metrics_fp32;  // computed in fp32; none if the task does without
  // If they were asked for, and the task has classes; in fp32 if it is evaluated so.
  std::vector<ClassCount> classes, classes_fp32;
};

class Trainer {
 public:
  // Loads the data, makes the plans. Throws an Error for a configuration that cannot be followed.
  // `by_class`: evaluations count each class too.
  Trainer(const RunConfig& config, Observer& observer, bool by_class = false);
  ~Trainer();

  // From the start, or from where the run's last checkpoint stands. `stop` ends it after the step
  // that is running, with a checkpoint. Throws an Error if a file cannot be written; what was saved
  // before stays. Throws Diverged for a run that has come to nothing, once it is saved as such.
  Outcome run(bool resume, const std::atomic<bool>& stop);

  // Of a checkpoint in the run's folder: "last" or "best".
  Evaluation evaluate(const std::string& which);

  Engine& engine() { return *engine_; }
  const RunProgress& progress() const { return progress_; }
  const BatchStream& batches() const { return *train_; }
  const LearningTask& task() const { return *task_; }

 private:
  std::string path(std::string_view file) const;
  void plan();
  void read_data();
  std::vector<double> sensitivities();
  std::vector<MetricValue> named(const std::vector<double>& values, Part part) const;
  void start(bool resume);
  void keep_changes() const;
  bool step(const std::atomic<bool>& stop);
  void open_ranges();
  RangeRecord range_record(const StepReport& report) const;
  Json cancelled_by_weight() const;
  void promote(std::span<const Promotion> promotions);
  void report_trouble();
  void watch_loss(const FeedBatch& batch, double loss);
  [[noreturn]] void diverge();
  bool end_epoch(const std::atomic<bool>& stop);
  bool evaluate_all(const std::atomic<bool>* stop, Evaluation& result);
  void load(const std::string& file, LoadFor use);
  void save(std::string_view file);
  void finish();

  const RunConfig config_;
  Observer& observer_;
  TaskOptions wanted_;
  std::unique_ptr<LearningTask> task_;
  std::unique_ptr<BatchStream> train_, test_;
  std::unique_ptr<Meter> meter_;  // of the epoch that is trained
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<HistogramFile> histograms_;  // if --histograms names tensors
  std::unique_ptr<EventWriter> events_;
  std::unique_ptr<RangeFile> ranges_;
  std::vector<TensorId> ranged_;  // whose ranges it has
  std::string run_;               // what its checkpoints must be of
  uint64_t total_steps_ = 0;
  size_t rss_start_ = 0, rss_peak_ = 0;
  bool rss_forgotten_ = false;
  RunProgress progress_;
  bool troubled_ = false;  // said already
  std::unique_ptr<Stepper> stepper_;
  // Of this process: a checkpoint knows no time, so that equal runs write equal files.
  double started_ = 0, epoch_started_ = 0;
  double epoch_examples_here_ = 0;  // since epoch_started_
  double rate_ = 0;                 // examples a second, smoothed
  double test_loss_ = 0;            // of the last epoch
};

// The checks and files of a new run or a resumed one around Trainer, in a folder of its own (see
// RunFolder): writes config.toml first. A folder without a checkpoint resumes from step 0; a
// finished run is left alone. Throws Diverged for one that has come to nothing, now or before.
Outcome train(const RunConfig& config, bool resume, Observer& observer, const std::atomic<bool>& stop);

}  // namespace ulp
