// `ulp sensitivity`: how much the gradient suffers from each group that is stored low, for the
// policy sensitivity:R.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/pilot_options.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/precision/demote.h"
#include "ulp/run/sensitivity.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

struct SensitivityCommandOptions : PilotCommandOptions {
  std::string out;
};

// The first of a group that the graph computes: what it begins with.
std::string name_of(const Engine& engine, int group) {
  for (const CountedTensor& tensor : engine.counted()) {
    if (tensor.group == group && tensor.kind == Kind::activation) return tensor.name;
  }
  return "";
}

void print_table(const RunConfig& config, const LearningTask& task, const Sensitivities& measured) {
  const EngineOptions options = engine_options(config, task);
  const Engine engine(options);
  PolicyOptions policy;
  policy.candidates = options.precision.candidates;
  policy.keep_first_last = options.precision.keep_first_last;
  const std::vector<uint64_t> saved = saved_bits(engine.graph(), engine.counted(), policy);
  const std::vector<int> order = order_by_error(measured.errors, saved, measured.elements);
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[static_cast<size_t>(order[i])] = i + 1;
  fmt::print("{:<7}{:<34}{:>12}{:>12}{:>12}{:>16}{:>7}\n", "group", "begins with", "elements", "saved MiB",
             "error", "error per MiB", "order");
  for (size_t i = 0; i < measured.errors.size(); ++i) {
    const double mebibytes = static_cast<double>(saved[i]) / 8 / 0x1p20;
    fmt::print("{:<7}{:<34}{:>12}{:>12.3f}{:>12.3e}{:>16.3e}{:>7}\n", i, name_of(engine, static_cast<int>(i)),
               measured.elements[i], mebibytes, measured.errors[i], measured.errors[i] / mebibytes, place[i]);
  }
}

void sensitivity_command(const SensitivityCommandOptions& options) {
  if (options.out.empty()) fail("sensitivity", "--out is empty: name the file to write");
  // Said before the work, not after it.
  const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
  if (std::error_code error; !folder.empty() && !std::filesystem::is_directory(folder, error)) {
    fail("sensitivity", "--out {}: there is no folder {}", options.out, folder.string());
  }
  if (std::error_code error; std::filesystem::is_directory(options.out, error)) {
    fail("sensitivity", "--out {} is a folder: name the file to write", options.out);
  }
  const RunConfig config = options.config();
  if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
  const std::unique_ptr<LearningTask> task = make_task(task_options(config));
  const Sensitivities measured = [&] {
    WorkLine line("measuring");
    return measure_sensitivities(config, *task, options.pilot,
                                 [&](size_t done, size_t all) { line.draw(done, all, done); });
  }();
  print_table(config, *task, measured);
  save_sensitivities(options.out, measured);
  fmt::print("\nwritten to {}; use it with --policy {}\n", options.out,
             shell_quoted("sensitivity:R:" + options.out));
}

}  // namespace

void add_sensitivity_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "sensitivity", "Measure how much each group of tensors, stored low by itself, disturbs the gradient");
  auto options = std::make_shared<SensitivityCommandOptions>();
  command->add_option("--out", options->out, "The file to write, for --policy sensitivity:R:FILE")
      ->type_name("FILE")
      ->required();
  add_pilot_options(*command, *options);
  command->footer(
      "The error is |g - h|^2 / |h|^2: g the gradient with one group low, h with all high. The order is by "
      "error for what\n"
      "is saved. Length and policy of the run do not matter, but for what they make of the learning rate.\n"
      "Examples:\n"
      "  ulp sensitivity --model resnet20 --data fashion-mnist --out resnet20.json\n"
      "  ulp sensitivity --config runs/lenet/config.toml --candidates fp8 --pilot-batches 8 --out "
      "lenet.json\n"
      "  ulp plan --model resnet20 --input 1x32x32 --policy sensitivity:0.5:resnet20.json");
  command->callback([options] { sensitivity_command(*options); });
}

}  // namespace ulp
