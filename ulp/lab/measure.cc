#include "ulp/lab/measure.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/precision/demote.h"
#include "ulp/run/pilot.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

constexpr int kRandomOrders = 5;

std::vector<int> groups_of(uint32_t low) {
  std::vector<int> groups;
  for (uint32_t rest = low; rest != 0; rest &= rest - 1) groups.push_back(std::countr_zero(rest));
  return groups;
}

RunConfig with_seed(RunConfig config, uint64_t more) {
  config.seed += more;
  return config;
}

EngineOptions planner_options(const ParetoOptions& options, const LearningTask& task) {
  EngineOptions engine = engine_options(options.config, task);
  engine.precision.policy = "size:0";
  return engine;
}

// A file of measured costs by seed and choice: lines "seed,low,cost" under a first line that says
// what was measured.
class MeasuredFile {
 public:
  MeasuredFile(const ParetoOptions& options, const Score& score, size_t choices)
      : path_((std::filesystem::path(options.folder) / "measured.csv").string()) {
    const bool gradient = options.measure == Measure::gradient;
    std::string what =
        fmt::format("# {}; {}", gradient ? "gradient" : score.word(), run_text(options.config));
    if (gradient) what += fmt::format("; pilot {} {}", options.pilot.batches, options.pilot.warmup);
    // There must be a file to lock; one that was empty says nothing.
    std::ofstream(path_, std::ios::app).flush();
    lock_.emplace(path_);
    if (!lock_->held()) fail("lab", "another process is measuring in {}: stop it first", options.folder);
    std::ifstream in(path_, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    Measured read = parse_measured(text, what, choices, path_);
    costs_ = std::move(read.costs);
    // Keeps all measurements; only a last line that was cut off is removed.
    std::error_code error;
    std::filesystem::resize_file(path_, read.whole, error);
    if (error) fail("lab", "cannot write {}: {}", path_, error.message());
    file_.open(path_, std::ios::app);
    if (read.whole == 0) file_ << what << "\n";
    flush();
  }

  const double* find(uint64_t seed, uint32_t low) const {
    const auto found = costs_.find({seed, low});
    return found == costs_.end() ? nullptr : &found->second;
  }

  void add(uint64_t seed, uint32_t low, double cost) {
    costs_[{seed, low}] = cost;
    file_ << fmt::format("{},{},{}\n", seed, low, cost);
    flush();
  }

 private:
  void flush() {
    file_.flush();
    if (!file_) fail("lab", "cannot write {}", path_);
  }

  const std::string path_;
  std::optional<FileLock> lock_;
  decltype(Measured::costs) costs_;
  std::ofstream file_;
};

double trained_error(const RunConfig& config, const LearningTask& task, uint32_t low) {
  Pilot pilot(config, task, {.tests = true});
  pilot.engine().set_assignment(pilot.low(groups_of(low)));
  // Where the loss scale gets stuck the run is over; what it has learnt by then is what counts.
  pilot.train(pilot.total_steps());
  return score_of(task.metrics().front()).cost(pilot.score());
}

bool parse_line(std::string_view line, size_t choices, Measured& read) {
  uint64_t seed = 0;
  uint32_t low = 0;
  double cost = 0;
  const char* end = line.data() + line.size();
  const auto after_seed = std::from_chars(line.data(), end, seed);
  if (after_seed.ec != std::errc() || after_seed.ptr == end || *after_seed.ptr != ',') return false;
  const auto after_low = std::from_chars(after_seed.ptr + 1, end, low);
  if (after_low.ec != std::errc() || after_low.ptr == end || *after_low.ptr != ',' || low >= choices)
    return false;
  const auto after_cost = std::from_chars(after_low.ptr + 1, end, cost);
  if (after_cost.ec != std::errc() || after_cost.ptr != end) return false;
  read.costs[{seed, low}] = cost;
  return true;
}

std::vector<Choice> planned_choices(const ParetoOptions& options, const LearningTask& task,
                                    std::vector<size_t>& elements) {
  const EngineOptions engine_opts = planner_options(options, task);
  Engine engine(engine_opts);
  elements = group_elements(engine.counted());
  if (elements.size() > kMostGroups) {
    fail("lab",
         "{} has {} groups, and 2^{} choices are too many to measure: at most {} groups, such as lenet or "
         "resnet8 have",
         options.config.model, elements.size(), elements.size(), kMostGroups);
  }
  engine.allocate();
  PolicyOptions policy;
  policy.candidates = engine_opts.precision.candidates;
  policy.keep_first_last = engine_opts.precision.keep_first_last;
  std::vector<Choice> choices(size_t{1} << elements.size());
  for (uint32_t low = 0; low < choices.size(); ++low) {
    Assignment assignment = demote_groups(engine.graph(), engine.counted(), groups_of(low), policy);
    apply_overrides(engine_opts.precision.overrides, engine.counted(), policy.candidates, assignment);
    engine.set_assignment(std::move(assignment));
    Choice& choice = choices[low];
    choice.low = low;
    choice.aggregate_bits = aggregate_bits(engine.counted(), engine.assignment());
    choice.low_ratio = engine.low_ratio();
    choice.peak_bytes = engine.training_plan().peak_bytes();
  }
  return choices;
}

// The path of choices that the policy peak:BYTES takes for ever fewer bytes.
Path peak_path(const ParetoOptions& options, const LearningTask& task) {
  Path path{"peak", {}};
  EngineOptions engine_opts = planner_options(options, task);
  size_t bytes = Engine(engine_opts).training_plan().peak_bytes();
  while (true) {
    engine_opts.precision.policy = fmt::format("peak:{}", bytes - 1);
    std::optional<Engine> engine;
    try {
      engine.emplace(engine_opts);
    } catch (const Error&) {
      return path;  // it does not get smaller
    }
    uint32_t low = 0;
    for (const int group : engine->assignment().low_groups) low |= uint32_t{1} << group;
    if (low + 1 != uint32_t{1} << group_elements(engine->counted()).size()) path.low.push_back(low);
    bytes = engine->training_plan().peak_bytes();
  }
}

}  // namespace

Measured parse_measured(std::string_view text, std::string_view first, size_t choices,
                        const std::string& path) {
  Measured read;
  for (size_t count = 1; read.whole < text.size(); ++count) {
    const size_t end = text.find('\n', read.whole);
    const std::string_view line = text.substr(read.whole, end - read.whole);
    const bool cut_off = end == text.npos;
    if (count == 1 && line != first && !(cut_off && first.starts_with(line))) {
      fail("lab",
           "{} holds measurements of another configuration: name another folder with --out, or remove it",
           path);
    }
    if (cut_off) break;
    if (count > 1 && !parse_line(line, choices, read))
      fail("lab", "line {} of {} is none that measuring writes: remove it", count, path);
    read.whole = end + 1;
  }
  return read;
}

ParetoResult measure_choices(const ParetoOptions& options, const LearningTask& task,
                             const ParetoProgress& progress, const std::atomic<bool>& stop) {
  if (options.seeds < 1) fail("lab", "there must be 1 seed or more, got {}", options.seeds);
  ParetoResult result;
  result.measure = options.measure;
  result.score = options.measure == Measure::gradient ? Score{"gradient_error", false}
                                                      : score_of(task.metrics().front());
  result.choices = planned_choices(options, task, result.elements);
  const auto seeds = static_cast<uint64_t>(options.seeds);
  const size_t total = result.choices.size() * seeds;
  MeasuredFile file(options, result.score, result.choices.size());
  size_t done = 0, here = 0;
  for (uint64_t more = 0; more < seeds; ++more) {
    const RunConfig config = with_seed(options.config, more);
    const std::unique_ptr<LearningTask> seeded = task.with_seed(config.seed);
    std::unique_ptr<GradientErrors> errors;
    for (Choice& choice : result.choices) {
      const double* known = file.find(config.seed, choice.low);
      if (known == nullptr) {
        if (stop) return result;
        if (options.measure == Measure::gradient && !errors) {
          errors = std::make_unique<GradientErrors>(config, *seeded, options.pilot);
          errors->prepare();
        }
        file.add(config.seed, choice.low,
                 errors ? errors->of(groups_of(choice.low)) : trained_error(config, *seeded, choice.low));
        ++here;
        known = file.find(config.seed, choice.low);
      }
      choice.costs.push_back(*known);
      if (progress) progress(++done, total, here);
    }
  }
  result.complete = true;
  return result;
}

std::vector<Path> policy_paths(const ParetoOptions& options, const LearningTask& task) {
  const auto order = [&](const std::string& policy, std::vector<double> errors = {}) {
    EngineOptions engine_opts = planner_options(options, task);
    engine_opts.precision.policy = policy;
    engine_opts.sensitivities = [&errors] { return errors; };
    return Engine(engine_opts).assignment().low_groups;
  };
  std::vector<Path> paths = {path_of("size", order("size:1")), path_of("size-inc", order("size-inc:1"))};
  for (int seed = 0; seed < kRandomOrders; ++seed) {
    paths.push_back(path_of(fmt::format("random {}", seed), order(fmt::format("random:1:{}", seed))));
  }
  paths.push_back(
      path_of("sensitivity",
              order("sensitivity:1", measure_sensitivities(options.config, task, options.pilot).errors)));
  paths.push_back(peak_path(options, task));
  return paths;
}

}  // namespace ulp
