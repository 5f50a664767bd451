// Costs and results of rules for weight updates: finished runs that differ in rule and format of
// their weights, by the bytes that a weight takes, with the metric that they reached and the share
// of their updates that rounding cancelled.
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

// A finished run.
struct UpdateRun {
  std::string policy, weight, rule;  // weight: the stored format, without extra bits
  uint64_t seed = 0;
  // Bytes of a weight with all that its rule keeps beside it; optimizer state is not counted.
  double bytes = 0;
  Score score = {};
  double reached = 0, train_loss = 0;  // of the last epoch; the first is the metric of the test set
  std::vector<double> cancelled = {};  // by epoch, the mean over its steps
  // All other options that decide what the run computes, by name; in all runs the same names.
  // At their end stand `data_dir` and `data_digest`. A run whose checkpoint has the digest of its data,
  // "text 0123abcd", has no folder there: it does not matter where the data lies.
  UpdateSettings settings = {};
  std::string path = {};  // for messages
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

// Reads the text of a run's metrics. Returns false and makes nothing if the run is not finished.
// `path` is for messages.
bool read_update_run(const RunConfig& config, std::string_view metrics, const std::string& path,
                     UpdateRun& run);
// All finished runs below a folder, as `ulp sweep` leaves them. Throws an Error where there is
// none.
std::vector<UpdateRun> find_update_runs(const std::string& folder);

// The costs of all runs, in the order of policy, format, bytes and whatever else differs. Throws an
// Error for runs of different metrics, and for two runs of one seed that differ in threads at most, since
// that seed would count twice.
std::vector<UpdateCost> update_costs(std::span<const UpdateRun> runs);
std::string update_costs_markdown(std::span<const UpdateCost> costs);
std::string update_costs_csv(std::span<const UpdateCost> costs);
// Loss by bytes, and cancelled updates over the run.
std::string update_costs_svg(std::span<const UpdateCost> costs);

}  // namespace ulp
