// `ulp tune`: how much can be stored low, by what short runs reach on the test set or by the memory
// that there is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/job_progress.h"
#include "apps/ulp/options.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/parallel.h"
#include "ulp/base/text.h"
#include "ulp/lab/results.h"
#include "ulp/lab/table.h"
#include "ulp/lab/tune.h"

namespace ulp {
namespace {

constexpr int64_t kPilotEpochs = 2;
constexpr int64_t kPilotExamples = 6000;

struct TuneOptions {
  RunOptions run;
  double max_drop = 0;
  std::string memory, ratios = "0,0.25,0.5,0.75,1";
  int64_t pilot_epochs = kPilotEpochs, pilot_subset = kPilotExamples, jobs = 1;
  const CLI::Option *drop_option = nullptr, *memory_option = nullptr, *ratios_option = nullptr,
                    *epochs_option = nullptr, *subset_option = nullptr, *jobs_option = nullptr;

  bool given(std::string_view name) const {
    return std::any_of(run.flags.begin(), run.flags.end(), [&](const RunOptions::Flag& flag) {
      return flag.field->name == name && flag.option->count() > 0;
    });
  }
};

std::string bytes_cell(size_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string share_cell(double share, int digits = 2) { return fmt::format("{:.{}f}", 100 * share, digits); }

// What the user will train, but for the policy; the folder is the one of tuning.
RunConfig own_config(const TuneOptions& options) {
  RunConfig config = options.run.settings();
  if (options.given("policy") || config.policy != RunConfig().policy) {
    fail("tune", "tuning chooses the policy, size:R: leave policy {} out", config.policy);
  }
  if (config.out.empty()) {
    std::string name = fmt::format("tune-{}-{}-{}", config.model, config.data, config.seed);
    std::replace(name.begin(), name.end(), '/', '_');  // data may be a path
    config.out = "runs/" + name;
  }
  config.policy = "size:1";  // with which formats can be chosen
  check(config);
  return config;
}

void check_options(const TuneOptions& options) {
  const bool drop = options.drop_option->count() > 0, memory = options.memory_option->count() > 0;
  if (drop == memory) {
    fail("tune", "give {} --max-drop, to choose by the test metric, {} --memory, to choose by bytes",
         drop ? "either" : "one of", drop ? "or" : "and");
  }
  if (options.jobs < 1) fail("tune", "--jobs is {}; it must be a whole number from 1", options.jobs);
  if (options.pilot_epochs < 1) {
    fail("tune", "--pilot-epochs is {}; it must be a whole number from 1", options.pilot_epochs);
  }
  if (options.pilot_subset < 0) {
    fail("tune", "--pilot-subset is {}; it must be a whole number from 0", options.pilot_subset);
  }
  for (const CLI::Option* option :
       {options.ratios_option, options.epochs_option, options.subset_option, options.jobs_option}) {
    if (memory && option->count() > 0) {
      fail("tune", "{} is about pilot runs, and --memory needs none: leave it out", option->get_name());
    }
  }
}

// In units of the metric.
void check_drop(double max_drop, const Score& score) {
  if (score.percent() && !(max_drop >= 0 && max_drop < 1)) {
    fail("tune", "--max-drop is {}; it must be a share from 0, below 1: 0.01 is one percent point", max_drop);
  }
  if (!(max_drop >= 0 && std::isfinite(max_drop))) {
    fail("tune", "--max-drop is {}; it must be a number from 0, how much worse {} may be", max_drop,
         score.word());
  }
}

// The choice as a file, and how to go on.
void write_choice(RunConfig config, double ratio) {
  const std::string folder = config.out, file = folder + "/tuned.toml";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("tune", "cannot make the folder {}: {}", folder, error.message());
  config = with_ratio(std::move(config), ratio);
  config.out = "";
  check(config);
  const std::string text = config_text(config);
  write_file_atomically(file, text);
  fmt::print("chosen: {}\nulp train --config {}\n", config.policy, shell_quoted(file));
}

// What may help where nothing fits; nothing if the batch cannot be cut into more.
std::string smaller_batches(const RunConfig& config) {
  for (int64_t parts = config.grad_accum + 1; parts <= config.batch; ++parts) {
    if (config.batch % parts == 0) return fmt::format("; --grad-accum {} may need less", parts);
  }
  return "";
}

void tune_memory(const TuneOptions& options, const RunConfig& config) {
  const std::optional<int64_t> limit = parse_bytes(options.memory);
  if (!limit || *limit <= 0) {
    fail("tune", "--memory is '{}'; it must be bytes above 0, such as 300MB or 2GB", options.memory);
  }
  const RunInput input = run_input(config);
  TextTable table;
  table.columns = {{"r"}, {"low %"}, {"aggregate %"}, {"peak bytes"}, {"peak"}, {"fits", true}};
  std::optional<double> chosen;
  size_t chosen_peak = 0;
  RunEstimate all_high;
  std::pair<size_t, double> least = {~size_t{0}, 0};
  // More groups low need not mean a lower peak, so each is planned.
  for (const double ratio : distinct_ratios(config, input)) {
    const RunEstimate plan = estimate_of(with_ratio(config, ratio), input);
    if (ratio == 0) all_high = plan;
    const bool fits = plan.peak_bytes <= static_cast<size_t>(*limit);
    if (fits && !chosen) {
      chosen = ratio;
      chosen_peak = plan.peak_bytes;
    }
    least = std::min(least, {plan.peak_bytes, ratio});
    table.rows.push_back(
        {fmt::format("{}", ratio), share_cell(plan.low_ratio),
         share_cell(static_cast<double>(plan.aggregate_bits) / static_cast<double>(all_high.aggregate_bits)),
         std::to_string(plan.peak_bytes), bytes_cell(plan.peak_bytes), fits ? "yes" : ""});
  }
  fmt::print("{}\n", table.markdown());
  if (!chosen) {
    fail("tune", "nothing fits in {}: the least is {} bytes ({}), with size:{}{}", options.memory,
         least.first, bytes_cell(least.first), least.second, smaller_batches(config));
  }
  if (promotion_of(with_ratio(config, *chosen)) && all_high.peak_bytes > static_cast<size_t>(*limit)) {
    fmt::print("planned peak: {} before promotion; {} if everything is promoted, which is above {}\n",
               bytes_cell(chosen_peak), bytes_cell(all_high.peak_bytes), options.memory);
  }
  write_choice(config, *chosen);
}

// Flags say how long pilots are too, and --pilot-... go before them; a file is about the run to
// come. A task that trains on all examples does so in pilots.
RunConfig pilot_config(const TuneOptions& options, RunConfig config, const RunInput& input) {
  if (options.epochs_option->count() > 0 || !(options.given("epochs") || options.given("steps"))) {
    const bool shorter = config.steps == 0 && config.epochs < options.pilot_epochs;
    if (options.epochs_option->count() > 0 || !shorter) config.epochs = options.pilot_epochs;
    config.steps = 0;
  }
  if (options.subset_option->count() > 0) {
    if (options.pilot_subset > 0 && !input.takes_subset) {
      fail("tune", "--pilot-subset is {}, and task {} trains on all examples: leave it out",
           options.pilot_subset, config.task);
    }
    config.subset = options.pilot_subset;
  } else if (!options.given("subset") && input.takes_subset) {
    const auto most = static_cast<size_t>(std::max(kPilotExamples, config.batch));
    const size_t all = config.subset > 0 ? static_cast<size_t>(config.subset) : input.size.train;
    if (all > most) config.subset = static_cast<int64_t>(most);
  }
  check(config);
  return config;
}

// The runs to compare. fp32 is first, since the others are worth nothing without it.
struct Pilots {
  JobList list;                   // fp32, then each ratio
  std::vector<TunePilot> pilots;  // each ratio
};

Pilots make_pilots(const RunConfig& pilot, const std::vector<double>& ratios, const RunInput& input) {
  Pilots made;
  const auto add = [&](RunConfig config, std::string name) {
    config.out = pilot.out + "/" + name;
    check(config);
    made.list.jobs.push_back({std::move(config)});
    made.list.names.push_back(std::move(name));
  };
  add(as_fp32(pilot), "fp32");
  for (const double ratio : ratios) {
    const RunConfig config = with_ratio(pilot, ratio);
    add(config, fmt::format("size_{}", ratio));
    made.pilots.push_back({ratio, estimate_of(config, input)});
  }
  return made;
}

void print_pilots(const std::vector<TunePilot>& pilots, const RunResult& fp32, const RunEstimate& fp32_plan,
                  uint64_t all_high, const Score& score) {
  TextTable table;
  table.columns = {
      {"r"},    {"planned aggregate %"}, {"measured low %"}, {"planned peak"}, {"best " + score.title()},
      {"drop"}, {"promotions"},          {"", true}};
  const auto relative = [&](const RunEstimate& plan) {
    return share_cell(static_cast<double>(plan.aggregate_bits) / static_cast<double>(all_high));
  };
  table.rows.push_back({"fp32", relative(fp32_plan), share_cell(0), bytes_cell(fp32_plan.peak_bytes),
                        score.number(fp32.best), "", "0", fp32.diverged ? "diverged" : ""});
  for (const TunePilot& pilot : pilots) {
    const bool done = pilot.finished;
    table.rows.push_back({fmt::format("{}", pilot.ratio), relative(pilot.plan),
                          done ? share_cell(pilot.low_ratio) : "-", bytes_cell(pilot.plan.peak_bytes),
                          done ? score.number(pilot.best) : "-",
                          done ? score.number(score.drop(fp32.best, pilot.best)) : "-",
                          done ? std::to_string(pilot.promotions) : "-",
                          !done            ? "failed"
                          : pilot.diverged ? "diverged"
                                           : ""});
  }
  fmt::print("\n{}\n", table.markdown());
}

void tune_drop(const TuneOptions& options, const RunConfig& config) {
  const std::vector<double> ratios = parse_ratios(options.ratios);
  const RunInput input = run_input(config);
  check_drop(options.max_drop, input.score);
  const RunConfig pilot = pilot_config(options, config, input);
  Pilots made = make_pilots(pilot, ratios, input);
  for (const Job& job : made.list.jobs) refuse_other_run(job);
  const auto lock = lock_job_folder(config.out);
  fmt::print("pilots of {} on {} examples in {}\n",
             pilot.steps > 0 ? fmt::format("{} steps", pilot.steps) : fmt::format("{} epochs", pilot.epochs),
             pilot.subset > 0 ? static_cast<size_t>(pilot.subset) : input.size.train, config.out);
  const JobFailures failures = run_visibly(made.list, static_cast<size_t>(options.jobs), "the same command");
  const Job& baseline = made.list.jobs[0];
  if (const auto failed = failures.find(baseline.config.out); failed != failures.end()) {
    fmt::print("the run in fp32, which the others are compared with, failed: {}\n", failed->second);
    throw CLI::RuntimeError(1);
  }
  const RunResult fp32 = read_result(baseline.config.out);
  for (size_t i = 0; i < made.pilots.size(); ++i) {
    // All that did not fail are finished, and can be read.
    const std::string& folder = made.list.jobs[i + 1].config.out;
    if (failures.contains(folder)) continue;
    const RunResult result = read_result(folder);
    TunePilot& one = made.pilots[i];
    one.finished = true;
    one.diverged = result.diverged;
    one.best = result.best;
    one.low_ratio = result.low_ratio;
    one.promotions = result.promotions;
  }
  const uint64_t all_high = estimate_of(with_ratio(pilot, 0), input).aggregate_bits;
  print_pilots(made.pilots, fp32, estimate_of(baseline.config, input), all_high, input.score);
  if (fp32.diverged) {
    fmt::print(
        "the run in fp32, which the others are compared with, diverged: nothing is chosen. Try a smaller "
        "--lr\n");
    throw CLI::RuntimeError(1);
  }
  const std::optional<size_t> chosen = choose_by_drop(made.pilots, input.score, fp32.best, options.max_drop);
  if (!chosen) {
    fmt::print(
        "none is within {} of fp32's {}: nothing is chosen. Allow a larger --max-drop, try smaller "
        "--ratios, or longer pilots\n",
        options.max_drop, input.score.text(fp32.best));
    throw CLI::RuntimeError(1);
  }
  write_choice(config, made.pilots[*chosen].ratio);
}

}  // namespace

void add_tune_command(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("tune", "Choose how much is stored low: by a metric, or by memory");
  auto options = std::make_shared<TuneOptions>();
  options->drop_option =
      command
          ->add_option(
              "--max-drop", options->max_drop,
              "Train short pilots, and choose what saves most and is at most this worse than fp32 in "
              "the task's test metric; of accuracy a share")
          ->type_name("DROP");
  options->memory_option = command
                               ->add_option("--memory", options->memory,
                                            "Choose the smallest ratio whose planned peak fits in this")
                               ->type_name("BYTES");
  options->ratios_option = command->add_option("--ratios", options->ratios, "What pilots try")
                               ->type_name("R,R,..")
                               ->capture_default_str();
  options->epochs_option =
      command
          ->add_option("--pilot-epochs", options->pilot_epochs,
                       "Epochs of a pilot; not given, --epochs or --steps say, if they are")
          ->capture_default_str();
  options->subset_option =
      command
          ->add_option("--pilot-subset", options->pilot_subset,
                       "Examples that a pilot trains on, 0: all; not given, --subset says, if it is")
          ->capture_default_str();
  options->jobs_option =
      command->add_option("--jobs", options->jobs, "Pilots at a time; they share the threads")
          ->capture_default_str();
  add_run_options(*command, options->run);
  command->footer(
      "Writes DIR/tuned.toml, the run as it was asked for with policy size:R, where DIR is --out. Pilots are "
      "runs\n"
      "in DIR, which go on where they were stopped when the command is given again.\n"
      "Examples:\n"
      "  ulp tune --model squeezenet --width 0.25 --max-drop 0.01\n"
      "  ulp tune --model resnet20 --epochs 3 --max-drop 0.005 --ratios 0.5,0.8,0.9,1 --out runs/tune\n"
      "  ulp tune --model resnet18 --data cifar10 --epochs 200 --memory 300MB\n"
      "  ulp tune --task characters --data text.txt --model charmlp --max-drop 0.05\n"
      "  ulp train --config runs/tune/tuned.toml");
  command->callback([options] {
    check_options(*options);
    const RunConfig config = own_config(*options);
    // Each thread has buffers, which plans count.
    if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
    options->drop_option->count() > 0 ? tune_drop(*options, config) : tune_memory(*options, config);
  });
}

}  // namespace ulp
