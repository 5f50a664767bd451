// Runs by their figures, and as a table for a terminal: as wide as the terminal is, and no wider.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/report/run_record.h"

namespace ulp {

// Labelled records without what only a plot needs: there may be thousands. Never throws for what is in the
// folders.
std::vector<RunRecord> read_figures(std::span<const FoundRun> runs);

// An option of the run by its name in config.toml; "" where the file cannot be read.
std::string setting_of(const RunRecord& run, std::string_view name);

enum class RunOrder : uint8_t {
  age,     // what changed last comes first
  name,    // numbers in names by their value: s2 before s10
  metric,  // the best first, each metric by itself
  peak,    // the most first
};
// Throws an Error that lists the names for text that is none.
RunOrder run_order(std::string_view name);
// What has no metric or no peak comes last. Equal ones are in the order of their names.
void sort_runs(std::vector<RunRecord>& runs, RunOrder order);

// What a run was to train: so many epochs, or so many steps if they were chosen.
struct RunLength {
  uint64_t epochs = 0, steps = 0;  // 0: unknown
};
RunLength length_of(const RunRecord& run);
std::string progress_text(const RunRecord& run);  // "epoch 3/30", "step 40/100"

// Seconds in at most four letters, in the largest unit of which there is one: "59s", "2h", "400d".
std::string age_text(int64_t seconds);

// A row. Text has no letters that a terminal obeys.
struct RunLine {
  std::string run, state, progress, best, loss, peak, age;
  std::vector<double> curve;  // of the loss
};
// At most `columns` wide; 0: as wide as it comes. Where there is no room the curve is drawn smaller, then
// columns go that are missed least, then the front of long names. One column is always left, the run.
std::string runs_table(std::span<const RunLine> lines, size_t columns, bool ascii);

}  // namespace ulp
