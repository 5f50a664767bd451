// Events of training while it runs. Code that shows, writes or plots them implements an Observer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/plan/plan.h"

namespace ulp {

// A metric of the task with its value.
struct MetricValue {
  std::string name;
  double value = 0;
  bool share = false;  // of examples: shown as percent
};

struct StartReport {
  std::string model, data, out;
  size_t parameters = 0, train_examples = 0, test_examples = 0;
  uint64_t first_step = 0, total_steps = 0,
           steps_per_epoch = 0;          // first_step > 0: resumed after so many steps
  PlanBytes bytes;                       // planned, at the peak
  bool narrow = false;                   // not all tensors are fp32
  double state_bytes_per_parameter = 0;  // weights and what is kept beside them
  int threads = 1;
};

// After each step. Steps and epochs are counted from 1.
struct StepReport {
  uint64_t step = 0, total_steps = 0, epoch = 0;
  uint64_t step_in_epoch = 0, steps_per_epoch = 0;
  double loss = 0, lr = 0, scale = 1;
  bool skipped = false;
  double cancelled = 0;                    // the share of updates that rounding cancelled
  double epoch_loss = 0;                   // so far in this epoch
  std::vector<MetricValue> epoch_metrics;  // the same
  double examples_per_second = 0;          // of the last few steps
  size_t memory_bytes = 0;                 // in use by the engine
};

struct EpochReport {
  uint64_t epoch = 0, step = 0;
  double train_loss = 0, test_loss = 0;
  std::vector<MetricValue> train, test;
  bool narrow = false;                 // not all tensors are fp32
  std::vector<MetricValue> test_fp32;  // the same weights computed in fp32
  double low_ratio = 0;                // fraction of the papers' elements stored in the low format
  size_t peak_bytes = 0;
  double seconds = 0, examples_per_second = 0;
  bool best = false;  // the best value of the first metric so far
};

struct DoneReport {
  MetricValue best_test, final_test;  // of the first metric
  size_t peak_bytes = 0, planned_peak_bytes = 0, rss_start_bytes = 0, rss_peak_bytes = 0;
  double seconds = 0;  // since the start, or since the run was resumed
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(const StartReport&) {}
  virtual void on_step(const StepReport&) {}
  // While the test set is gone through.
  virtual void on_evaluate(size_t done, size_t total) {
    (void)done;
    (void)total;
  }
  virtual void on_epoch(const EpochReport&) {}
  virtual void on_checkpoint(const std::string& path, uint64_t step) {
    (void)path;
    (void)step;
  }
  virtual void on_done(const DoneReport&) {}
  // Once, where the loss or the loss scale shows that the run goes wrong; what is known of it lies
  // in the folder.
  virtual void on_trouble(const std::string& folder) { (void)folder; }
  // Anything else worth a line.
  virtual void on_note(const std::string& text) { (void)text; }
};

}  // namespace ulp
