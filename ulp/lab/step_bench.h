// How fast a training step is, how much memory it takes, and how far that is from what the machine
// can do: an engine as a training run has it, on random examples, without loaders and files. Rates
// and ceilings are measured in one run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/backend/ceilings.h"
#include "ulp/backend/plan_clock.h"
#include "ulp/run/config.h"
#include "ulp/session/profile.h"
#include "ulp/tasks/task.h"

namespace ulp {

// The measurements that a device supports; a null one is left out. A device without a row is timed
// as a whole.
struct BenchDevice {
  std::string_view name;  // as in EngineOptions
  Ceilings (*ceilings)() = nullptr;
  std::unique_ptr<PlanClock> (*clock)() = nullptr;
  // The most bytes of the device's own memory that were in use, with what libraries took. On the
  // host resident memory tells.
  size_t (*used_bytes)() = nullptr;
};
// Null where there is no row. The cores of this machine have theirs (cpu, reference).
const BenchDevice* find_bench_device(std::string_view name);
// To be called before anything is measured, by whoever adds the device's backend; the name is a
// literal.
void add_bench_device(const BenchDevice& device);

struct StepBenchOptions {
  RunConfig config;        // what is said of data does not matter
  std::string input = {};  // as NetworkId has it; "": what is usual for the task
  int64_t classes = 10;
  int64_t warmup_steps = 5;   // before anything is timed
  int64_t steps = 30;         // timed
  int64_t profile_steps = 5;  // more, timed kernel by kernel; 0: none
  bool ceilings = true;       // whether the machine's are measured too
};

struct StepBench {
  StepBenchOptions options;
  NetworkId network;
  size_t parameters = 0;
  int threads = 0;

  std::vector<double> seconds;  // of each timed step
  double median_seconds = 0, least_seconds = 0, most_seconds = 0;
  double examples_per_second = 0;  // at the median
  double loss = 0;                 // of the last step, a mean: whether it is a number
  int64_t skipped = 0;             // of the timed steps, for the loss scale
  size_t promotable = 0;           // tensors that training would have promoted after the last step

  size_t planned_bytes = 0;            // peak
  size_t allocated_bytes = 0;          // the allocator's high-water mark
  size_t resident_bytes = 0;           // by which the process grew
  std::optional<size_t> device_bytes;  // see BenchDevice

  StepWork work;
  double tflops() const { return 1e-12 * work.operations / median_seconds; }
  double gbs() const { return 1e-9 * work.bytes / median_seconds; }
  std::optional<Ceilings> ceilings;
  std::vector<KernelTime> kernels;
};

// Throws an Error for options that cannot be run, as training would.
StepBench bench_step(const StepBenchOptions& options);

// For people, and one JSON object on one line.
std::string step_bench_text(const StepBench& bench);
std::string step_bench_json(const StepBench& bench);

}  // namespace ulp
