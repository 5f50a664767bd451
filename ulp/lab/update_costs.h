// What rules for weight updates are worth: finished runs that differ in rule and format of their
// weights, by the bytes that a weight takes, with what they reached and how many of their updates
// rounding cancelled.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ulp/lab/score.h"
#include "ulp/run/config.h"

namespace ulp {

using UpdateSettings = std::vector<std::pair<std::string, std::string>>;

// One run.
struct UpdateRun {
  std::string policy, weight, rule;  // weight: the stored format, without extra bits
  uint64_t seed = 0;
  // Of a weight with all that its rule keeps beside it, optimizer state not counted.
  double bytes = 0;
  Score score = {};
  double reached = 0, train_loss = 0;  // of the last epoch; the first is the metric of the test set
  std::vector<double> cancelled = {};  // by epoch, the mean over its steps
  // All other options that decide what the run computes, by name; in all runs the same names.
  UpdateSettings settings = {};
};

// Runs that differ in nothing but the seed: means, and the range of what they reached.
struct UpdateCost {
  std::string policy, weight, rule;
  Score score = {};
  size_t seeds = 0;
  double bytes = 0, reached = 0, least = 0, most = 0, train_loss = 0;
  std::vector<double> cancelled = {};
  UpdateSettings settings = {};  // those of its runs in which not all costs are alike
};

// From the text of a run's metrics, which must be finished: of others nothing is made, and false
// returned. `path` is for messages.
bool read_update_run(const RunConfig& config, std::string_view metrics, const std::string& path,
                     UpdateRun& run);
// All finished runs below a folder, as `ulp sweep` leaves them. Throws an Error where there is
// none.
std::vector<UpdateRun> find_update_runs(const std::string& folder);

// By policy, format, bytes and what else differs. Throws an Error for runs of different metrics.
std::vector<UpdateCost> update_costs(std::span<const UpdateRun> runs);
std::string update_costs_markdown(std::span<const UpdateCost> costs);
std::string update_costs_csv(std::span<const UpdateCost> costs);
// Loss by bytes, and cancelled updates over the run.
std::string update_costs_svg(std::span<const UpdateCost> costs);

}  // namespace ulp
