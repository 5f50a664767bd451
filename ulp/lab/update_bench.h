// How fast the parameters of a model are updated, and how far that is from what the machine can do:
// the task that ends a training step, alone, on as many parameters as are asked for. Rate and
// ceiling are measured in one run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/backend/ceilings.h"
#include "ulp/optim/rule.h"
#include "ulp/run/config.h"

namespace ulp {

struct UpdateBenchOptions {
  RunConfig config;  // what is said of data, model, policy and groups does not matter
  std::string gradient = "fp32";
  int64_t elements = int64_t{1} << 28;
  int64_t tensors = 1;  // that the elements are shared out to
  int64_t warmup_steps = 5;
  int64_t steps = 30;
};

struct UpdateBench {
  UpdateBenchOptions options;
  std::string weight, state;  // as they are stored
  std::string rule, kernel;
  int threads = 0;

  std::vector<double> seconds;  // of each timed update
  double median_seconds = 0, least_seconds = 0, most_seconds = 0;
  size_t memory = 0;  // bytes of all tensors and the workspace
  double bytes = 0;   // that an update must read and write
  double gbs() const { return 1e-9 * bytes / median_seconds; }
  UpdateCounts counts;  // of the last update
  std::optional<Ceilings> ceilings;
};

// Throws an Error for options that cannot be run.
UpdateBench bench_update(const UpdateBenchOptions& options);

// For people, and one JSON object on one line.
std::string update_bench_text(const UpdateBench& bench);
std::string update_bench_json(const UpdateBench& bench);

}  // namespace ulp
