// All that a run has left in its folder, read once and made small: however long a run was, its
// record has a bounded size, and reading it takes a bounded amount of memory.
//
// Damage is no error. What can be read is read, and a note says which file, which line, and what was
// expected there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/doctor/checkup.h"
#include "ulp/lab/score.h"
#include "ulp/report/curve.h"
#include "ulp/report/found_run.h"
#include "ulp/report/histogram.h"
#include "ulp/run/config.h"
#include "ulp/run/ranges.h"

namespace ulp {

enum class RunState : uint8_t {
  running,   // somebody holds the folder's lock
  stopped,   // begun, and nobody trains it now
  done,      // to the end
  diverged,  // stopped for a loss that is not finite
  failed,    // a sweep says why it ended
  empty,     // no step was taken
};
std::string_view run_state_name(RunState state);

// How much of a run is kept.
struct ReadBudget {
  size_t curve = 4000;        // buckets, an even number
  size_t heat_columns = 240;  // at most, and at least 24 unless there are fewer records
  size_t heat_cells = 240 * 400;
  HistogramBudget histograms;
  bool remedies = true;  // what the doctor proposes is planned, which takes a while
};
// So that a report of so many runs stays of a size that a browser opens.
ReadBudget budget_for(size_t runs);

// A metric beside the one that a run is judged by.
struct OtherMetric {
  std::string name;
  std::vector<Number> train, test, test_fp32;  // as many as there are epochs
};
constexpr size_t kMostMetrics = 16;  // of them

// One row an epoch.
struct EpochColumns {
  std::vector<uint64_t> epoch, step;  // step: completed after it
  std::vector<Number> train_loss, test_loss, train, test, test_fp32, low_ratio, peak_bytes, seconds,
      examples_per_second;
  std::vector<OtherMetric> others;  // in the order of the log
  std::optional<size_t> best;       // which row is that of the best epoch, as training chooses it
  size_t count() const { return epoch.size(); }
};

// Narrow tensors by buckets of recorded steps: the largest value in each.
struct HeatMap {
  std::vector<RangedTensor> tensors;
  std::vector<uint64_t> step;  // the last step of each bucket
  // [tensor * step.size() + bucket]; amax is NaN where there was one.
  std::vector<float> overflow, underflow, amax;
  std::map<std::string, std::string> words;  // by tensor: what the doctor says of it
};
// Every bucket but the last holds as many records.
HeatMap heat_of(const RangeHistory& history, const ReadBudget& budget);

struct DoctorWords {
  std::string sentence, text;  // text: all of `ulp doctor DIR`
};

struct RunRecord {
  std::string id, folder;
  RunState state = RunState::empty;
  std::vector<std::string> notes;
  std::optional<RunConfig> config;                            // none: there is none that can be read
  std::vector<std::pair<std::string, std::string>> settings;  // every option by name, as text
  std::string group;    // equal for runs that differ in nothing but the seed
  std::string label;    // see label_groups
  Score score;          // the task's first metric
  uint64_t steps = 0;   // completed
  int64_t changed = 0;  // when a file of it last changed, in seconds since 1970

  EpochColumns epochs;
  Curve curve;
  std::vector<PromoteEvent> promotions;  // by step
  std::optional<HeatMap> heat;
  std::vector<HistogramRecord> histograms;
  std::vector<ShiftedRecord> shifted;
  std::optional<DoctorWords> doctor;
  bool treated = false;  // the doctor's text has remedies, or says why it has none

  // Figures of the whole run; none: unknown so far.
  Number best, best_fp32;  // test metric of the best epoch, as training chooses it
  Number last_loss;        // of the last step
  Number peak_bytes, planned_peak_bytes, seconds;
  uint64_t skipped = 0;

  // What its network is built from, as ranges.bin has it; no classes: there is no such file.
  RangedModel model;
};

// Never throws for what is in the folder.
RunRecord read_run(const FoundRun& run, const ReadBudget& budget, const HeldLocks& locks);

// A text that differs once a file of the run has changed, or somebody has begun or ended training:
// whoever looks again and again reads only runs whose stamp is another.
std::string run_stamp(const FoundRun& run, const HeldLocks& locks);

// Gives each record its label: the options in which not all groups are alike, by their values. A
// value that more than half of the groups have is left out, but for task, model, data and policy.
// Where nothing is left the group is called by its model and policy.
void label_groups(std::span<RunRecord> records);

}  // namespace ulp
