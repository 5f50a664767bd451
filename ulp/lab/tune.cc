#include "ulp/lab/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/groups.h"
#include "ulp/run/setup.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

constexpr int kMostDigits = 15;
// Metrics are quotients, such as accuracies of counts: a drop of exactly 0.01 must not be lost to
// their rounding.
constexpr double kSlack = 1e-9;

// The decimal with the fewest digits that is above `below` and at most `most`.
double shortest_between(double below, double most) {
  for (int digits = 1; digits <= kMostDigits; ++digits) {
    const double unit = std::pow(10.0, digits);
    const double value = std::floor(most * unit) / unit;
    if (value > below && value <= most) return value;
  }
  return most;
}

// A task that has no use for a subset refuses to be made with one.
bool takes_subset(TaskOptions options, const NetworkId& id) {
  options.subset = options.batch;
  try {
    sketch_task(options, id);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

RunInput run_input(RunConfig config) {
  config.subset = 0;
  const TaskOptions options = task_options(config);
  const std::unique_ptr<LearningTask> task = outline_task(options);
  return {task->id(),
          {task->examples(Part::train), task->examples(Part::test)},
          score_of(task->metrics().front()),
          takes_subset(options, task->id())};
}

RunEstimate estimate_of(const RunConfig& config, const RunInput& input) {
  const size_t train = config.subset > 0 ? static_cast<size_t>(config.subset) : input.size.train;
  if (train > input.size.train || static_cast<size_t>(config.batch) > train) {
    fail("tune", "{} has {} training examples, too few for a subset of {} or a batch of {}", config.data,
         input.size.train, config.subset, config.batch);
  }
  const std::unique_ptr<LearningTask> task = sketch_task(task_options(config), input.id, input.size);
  Engine engine(engine_options(config, *task));
  plan_task(engine, *task);
  return {engine.low_ratio(), aggregate_bits(engine.counted(), engine.assignment()),
          engine.planned_peak_bytes()};
}

std::vector<double> distinct_ratios(std::vector<size_t> sizes) {
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  const auto all = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
  std::vector<double> ratios = {0};
  double reached = 0;
  size_t sum = 0;
  for (const size_t size : sizes) {
    sum += size;
    // The quotient as the policy forms it, so that the comparison is the same.
    const double next = static_cast<double>(sum) / all;
    if (next > reached) ratios.push_back(shortest_between(reached, next));
    reached = next;
  }
  return ratios;
}

std::vector<double> distinct_ratios(const RunConfig& config, const RunInput& input) {
  const std::unique_ptr<LearningTask> task = sketch_task(task_options(config), input.id, input.size);
  const Engine engine(engine_options(with_ratio(config, 0), *task));
  return distinct_ratios(group_elements(engine.counted()));
}

std::vector<double> parse_ratios(std::string_view text) {
  std::vector<double> ratios;
  for (std::string_view left = text;;) {
    const std::string_view item = left.substr(0, left.find(','));
    double value = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || end != item.data() + item.size() || !(value >= 0 && value <= 1)) {
      fail("tune", "'{}' is no ratio; --ratios must be numbers from 0 to 1, as 0,0.25,0.5,0.75,1", item);
    }
    ratios.push_back(value);
    if (item.size() == left.size()) break;
    left.remove_prefix(item.size() + 1);
  }
  std::sort(ratios.begin(), ratios.end());
  if (const auto twice = std::adjacent_find(ratios.begin(), ratios.end()); twice != ratios.end()) {
    fail("tune", "--ratios has {} twice", *twice);
  }
  return ratios;
}

RunConfig with_ratio(RunConfig config, double ratio) {
  config.policy = fmt::format("size:{}", ratio);
  return config;
}

RunConfig as_fp32(RunConfig config) {
  const RunConfig defaults;
  for (const ConfigField& field : config_fields()) {
    if (field.group == "Precision") field.set(config, field.get(defaults));
  }
  config.policy = "fp32";
  return config;
}

std::optional<size_t> choose_by_drop(std::span<const TunePilot> pilots, const Score& score, double best,
                                     double max_drop) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < pilots.size(); ++i) {
    const TunePilot& pilot = pilots[i];
    if (!pilot.finished || pilot.diverged) continue;
    if (!(score.drop(best, pilot.best) <= max_drop + kSlack)) continue;
    const auto key = [](const TunePilot& p) { return std::pair(p.plan.aggregate_bits, -p.ratio); };
    if (!chosen || key(pilot) < key(pilots[*chosen])) chosen = i;
  }
  return chosen;
}

}  // namespace ulp
