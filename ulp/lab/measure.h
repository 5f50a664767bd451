// Every choice of groups of a small model, measured: the whole of what a policy of groups picks
// from. What is done is kept in a file, line by line, and a second call goes on from there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/lab/pareto.h"
#include "ulp/lab/score.h"
#include "ulp/run/config.h"
#include "ulp/run/sensitivity.h"
#include "ulp/tasks/task.h"

namespace ulp {

enum class Measure : uint8_t {
  // The task's first metric after the whole run, in the run's formats; nothing is promoted. Where
  // less is better it is the cost, else what it lacks to 1. What is no number has an infinite cost.
  score,
  gradient,  // the cost is the error in the gradient, see ulp/run/sensitivity.h
};

struct ParetoOptions {
  RunConfig config;  // of one run; the policy does not matter
  Measure measure = Measure::score;
  int64_t seeds = 3;  // from the configuration's on
  SensitivityOptions pilot = {};
  std::string folder;  // exists
};

// More groups than this have too many choices.
inline constexpr size_t kMostGroups = 12;

// After each measurement.
using ParetoProgress = std::function<void(size_t done, size_t total, size_t measured_here)>;

struct ParetoResult {
  bool complete = false;  // false: it was stopped
  Measure measure = Measure::score;
  Score score = {};              // what was measured
  std::vector<Choice> choices;   // all of them, in the order of Choice::low
  std::vector<size_t> elements;  // of groups
};

// The content of a measured.csv: costs by seed and choice.
struct Measured {
  size_t whole = 0;  // bytes of the lines that are whole; 0: not even the first line is
  std::map<std::pair<uint64_t, uint32_t>, double> costs = {};
};
// Reads the text of a measured.csv: the line `first`, then lines "seed,low,cost" with `low` below
// `choices`. A last line that was cut off is left out. Throws an Error, with `path`, for any other
// line.
Measured parse_measured(std::string_view text, std::string_view first, size_t choices,
                        const std::string& path);

// Keeps measured.csv in the folder. Throws an Error for a model with too many groups and for a
// folder that holds measurements of another configuration.
ParetoResult measure_choices(const ParetoOptions& options, const LearningTask& task,
                             const ParetoProgress& progress, const std::atomic<bool>& stop);

// The ways of choosing that there are policies for: size, size-inc, random with some seeds,
// sensitivity (measured with the first seed), peak.
std::vector<Path> policy_paths(const ParetoOptions& options, const LearningTask& task);

}  // namespace ulp
