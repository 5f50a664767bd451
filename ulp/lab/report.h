// The results of a sweep: one row for each combination of axes but the seed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/lab/jobs.h"
#include "ulp/lab/results.h"
#include "ulp/lab/score.h"
#include "ulp/lab/sweep.h"

namespace ulp {

// A run and where it stands.
struct SweepOutcome {
  const SweepRun* run = nullptr;
  JobState state = JobState::fresh;
  RunResult result = {};
  std::string error = {};  // of one that failed
};

// Over runs that differ in nothing but the seed. NaN where there is none.
struct Spread {
  double mean = 0, least = 0, most = 0;
};

// Figures are of the runs that are finished, the others are counted. A loss that was not finite
// counts in any.
struct ReportRow {
  std::string grid;
  std::vector<AxisValue> axes;      // without the seed
  const SweepRun* run = nullptr;    // the first of them
  std::optional<Score> score = {};  // none: no run has come far enough to say
  size_t runs = 0, finished = 0, failed = 0, missing = 0, diverged = 0;
  Spread best = {}, best_fp32 = {};
  double train_loss = 0, low_ratio = 0, promotions = 0, skipped = 0, seconds = 0;  // means
  size_t peak_bytes = 0;                                                           // the most
};

std::vector<ReportRow> report_rows(std::span<const SweepOutcome> outcomes);

// A table for each grid, then each run that is not finished, and how. Cells name their metric where
// the rows of a table have different ones.
std::string report_markdown(const std::string& title, std::span<const SweepOutcome> outcomes);
// One table; beside the figures it has every option that is an axis of any grid, and the metric of
// each row where rows have different ones.
std::string report_csv(std::span<const SweepOutcome> outcomes);

}  // namespace ulp
