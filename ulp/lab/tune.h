// Choosing r of the policy size:R, the share of elements in groups that are stored low: by what
// short runs reach on the test set, or by the memory that a run is planned to take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/lab/score.h"
#include "ulp/run/config.h"
#include "ulp/tasks/task.h"

namespace ulp {

// The facts of a task and its data set that plans and pilots need.
struct RunInput {
  NetworkId id;
  DataSize size;
  Score score = {};
  bool takes_subset = true;  // else it trains on all examples
};

// Takes sizes and shapes as published; a data set whose files decide them is read.
RunInput run_input(RunConfig config);

// The memory that a run will take and save, before it runs.
struct RunEstimate {
  double low_ratio = 0;
  uint64_t aggregate_bits = 0;
  size_t peak_bytes = 0;  // as training plans it, evaluation included
};
RunEstimate estimate_of(const RunConfig& config, const RunInput& input);

// The ratios at which size:R takes another group, from 0, which takes none, to the one that takes
// all: for each number of groups the shortest decimal that takes so many.
std::vector<double> distinct_ratios(std::vector<size_t> group_sizes);
std::vector<double> distinct_ratios(const RunConfig& config, const RunInput& input);

// "0,0.25,1" in rising order. Throws an Error for anything but different numbers from 0 to 1.
std::vector<double> parse_ratios(std::string_view text);

RunConfig with_ratio(RunConfig config, double ratio);
// The run in fp32 that others are compared with: all else that concerns formats is as if it had not
// been chosen.
RunConfig as_fp32(RunConfig config);

// A short run that was made to see what a ratio costs.
struct TunePilot {
  double ratio = 0;
  RunEstimate plan = {};
  bool finished = false, diverged = false;
  double best = 0, low_ratio = 0;  // measured; the second is the mean over epochs
  uint64_t promotions = 0;
};

// The one that saves most of those that are at most `max_drop` worse than `best`; of equals the
// larger ratio. One that is not finished or diverged is no choice. None where none is.
std::optional<size_t> choose_by_drop(std::span<const TunePilot> pilots, const Score& score, double best,
                                     double max_drop);

}  // namespace ulp
