// What training tells while it runs. Whoever wants to show, write or plot it implements an Observer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ulp/plan/plan.h"

namespace ulp {

struct StartReport {
  std::string model, data, out;
  size_t parameters = 0, train_examples = 0, test_examples = 0;
  uint64_t first_step = 0, total_steps = 0,
           steps_per_epoch = 0;          // first_step > 0: resumed after so many steps
  PlanBytes bytes;                       // planned, at the peak
  double state_bytes_per_parameter = 0;  // weights and what is kept beside them
  int threads = 1;
};

// After each step. Steps and epochs are counted from 1.
struct StepReport {
  uint64_t step = 0, total_steps = 0, epoch = 0;
  uint64_t step_in_epoch = 0, steps_per_epoch = 0;
  double loss = 0, lr = 0, scale = 1;
  bool skipped = false;
  double cancelled = 0;                       // the share of updates that rounding cancelled
  double epoch_loss = 0, epoch_accuracy = 0;  // so far in this epoch
  double examples_per_second = 0;             // of the last few steps
  size_t memory_bytes = 0;                    // in use by the engine
};

struct EpochReport {
  uint64_t epoch = 0, step = 0;
  double train_loss = 0, train_acc = 0, test_loss = 0, test_acc = 0;
  bool narrow = false;       // not all tensors are fp32
  double test_acc_fp32 = 0;  // the same weights computed in fp32
  double low_ratio = 0;      // fraction of the papers' elements stored in the low format
  size_t peak_bytes = 0;
  double seconds = 0, examples_per_second = 0;
  bool best = false;  // the best test accuracy so far
};

struct DoneReport {
  double best_test_acc = 0, final_test_acc = 0;
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
  // Once, where the loss or the loss scale shows that the run goes wrong; what is known of it lies in the folder.
  virtual void on_trouble(const std::string& folder) { (void)folder; }
  // Anything else worth a line.
  virtual void on_note(const std::string& text) { (void)text; }
};

}  // namespace ulp
