// Training as it is seen on standard output. On a terminal one line is redrawn in place while steps
// go by; elsewhere there is a plain line now and then. Either way there is a head with the planned
// memory, a line for each epoch and a summary. No colours and nothing beyond ASCII of its own.
// Output that cannot be written is dropped: a closed pipe must not end hours of training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "ulp/run/observer.h"

namespace ulp {

// Where the lines go, and what time it is. Tests bring their own.
struct ProgressOutput {
  bool live = false;                     // redraw a line in place
  std::function<size_t()> columns = {};  // of the terminal; asked at each redraw. Only if live.
  std::function<void(std::string_view)> write = {};
  std::function<double()> seconds = {};  // since any moment, never running backwards
};

// Standard output as it is. Ignores SIGPIPE from now on, in the whole process; after a failed write
// it is silent.
ProgressOutput standard_output();

// How long what is left will take: steps by those of about the last epoch, and the evaluations
// between epochs by the last one. The first step, which is slower, is left out.
class TimeLeft {
 public:
  // `horizon` is the number of steps after which an old one counts for a third. Until an evaluation
  // has been seen it is taken to last as long as `evaluation_steps`.
  explicit TimeLeft(double horizon = 1, double evaluation_steps = 0)
      : horizon_(horizon), evaluation_steps_(evaluation_steps) {}

  void step(double seconds, uint64_t step);
  // So much of an evaluation is done; 1: all of it, and what is saved after it.
  void evaluation(double seconds, double share);
  bool evaluated() const { return share_ == 1; }  // no step since
  // `evaluations` has the one that is going on. NaN before anything is known.
  double left(uint64_t steps, uint64_t evaluations) const;

 private:
  double horizon_, evaluation_steps_;
  double sum_ = 0, weight_ = 0;  // seconds a step
  double seconds_ = 0;           // of the last step; ended_: of what came after it, if all of that is done
  double ended_ = 0, evaluation_ = -1, share_ = 0;
  uint64_t step_ = 0;
  bool began_ = false;
};

// 0.4s, 42s, 4m05s, 3h07m, 2d04h; "?" for what is no duration.
std::string duration_text(double seconds);
// Four digits after the point, fewer and an exponent from 10^4 on; nan, inf.
std::string loss_text(double loss);
// 0.9123 as 91.23%; nan.
std::string share_text(double share);
// Accuracy as a share, other metrics as numbers; and a metric's name for people.
std::string metric_text(const MetricValue& metric);
std::string metric_title(const std::string& name);
// [####....] with `width` places, filled by `part` of `whole`.
std::string bar_text(uint64_t part, uint64_t whole, size_t width);
// As many of the parts between double spaces as fit: half a number would be another number.
std::string clip_text(std::string line, size_t columns);

uint64_t epoch_count(uint64_t total_steps, uint64_t steps_per_epoch);
// Steps of an epoch, counted from 1, of which the last one may be cut short.
uint64_t epoch_steps(uint64_t epoch, uint64_t total_steps, uint64_t steps_per_epoch);

// Lines without their end; start_text and done_text are several.
std::string start_text(const StartReport& report);
std::string step_text(const StepReport& report, double seconds_left, bool with_bar);
// The heading of the epochs' lines, with a line before it that says what is saved when (`every` so many
// steps too, unless 0) and what their `*` is.
std::string epoch_heading(const EpochReport& report, int64_t every = 0);
std::string epoch_text(const EpochReport& report, uint64_t epochs);
std::string done_text(const DoneReport& report);

class Progress : public Observer {
 public:
  // Of a run that saves a checkpoint every so many steps too; 0: after each epoch only.
  explicit Progress(ProgressOutput output = standard_output(), int64_t checkpoint_every = 0)
      : output_(std::move(output)), checkpoint_every_(checkpoint_every) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() override;

  void on_start(const StartReport& report) override;
  void on_step(const StepReport& report) override;
  void on_evaluate(size_t done, size_t total) override;
  void on_epoch(const EpochReport& report) override;
  void on_checkpoint(const std::string& path, uint64_t step) override;
  void on_done(const DoneReport& report) override;
  void on_trouble(const std::string& folder) override;
  void on_note(const std::string& text) override;

  // Of the run that has started.
  const std::string& folder() const { return folder_; }

 private:
  bool due();  // whether it is time to redraw
  void draw(std::string line);
  void print(const std::string& lines);

  ProgressOutput output_;
  int64_t checkpoint_every_ = 0;
  TimeLeft time_left_;
  uint64_t epochs_ = 0, epoch_ = 0, steps_left_ = 0;
  bool headed_ = false;
  std::string folder_;
  std::map<std::string, uint64_t> saved_;  // files and the steps after which they were written
  size_t drawn_ = 0;                       // columns of the live line that is on the screen
  double last_seconds_ = -1e9;             // of the last redraw or plain line
  uint64_t last_step_ = 0;                 // of the last plain line
};

}  // namespace ulp
