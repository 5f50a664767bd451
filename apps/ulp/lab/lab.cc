// `ulp lab`: experiments. `pareto`: what can be had at best, by trying everything.
#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/pilot_options.h"
#include "apps/ulp/stop.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/parallel.h"
#include "ulp/lab/pareto_report.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

struct ParetoCommandOptions : PilotCommandOptions {
  std::string out, measure = "metric";
  int64_t seeds = 3;
};

void write(const std::filesystem::path& path, const std::string& text) {
  write_file_atomically(path.string(), text);
}

void pareto_command(const ParetoCommandOptions& command) {
  if (command.out.empty()) fail("lab", "--out is empty: name the folder to write to");
  ParetoOptions options;
  options.config = command.config();
  options.measure = command.measure == "gradient" ? Measure::gradient : Measure::score;
  options.seeds = command.seeds;
  options.pilot = command.pilot;
  options.folder = command.out;
  if (options.config.threads > 0) set_thread_count(static_cast<int>(options.config.threads));
  const std::unique_ptr<LearningTask> task = make_task(task_options(options.config));
  std::error_code error;
  const std::filesystem::path folder(command.out);
  std::filesystem::create_directories(folder, error);
  if (error) fail("lab", "cannot make the folder {}: {}", command.out, error.message());
  const std::atomic<bool>& stop = listen_for_stop();
  const ParetoResult result = [&] {
    WorkLine line("measuring");
    return measure_choices(
        options, *task, [&](size_t done, size_t all, size_t here) { line.draw(done, all, here); }, stop);
  }();
  if (!result.complete) {
    fmt::print("stopped; the same command goes on from here\n");
    throw Stopped();
  }
  const std::vector<Path> paths = policy_paths(options, *task);
  write(folder / "pareto.csv", choices_csv(result, paths));
  write(folder / "pareto.svg", choices_svg(result, paths));
  fmt::print("{}\nwritten to {}: pareto.csv, pareto.svg\n", summary_text(result, paths), command.out);
}

void add_pareto_command(CLI::App& lab) {
  CLI::App* command = lab.add_subcommand(
      "pareto",
      "Measure every choice of low groups of a small model, and how far policies are from the best");
  auto options = std::make_shared<ParetoCommandOptions>();
  command
      ->add_option("--out", options->out,
                   "The folder to write to; what is done there already is not done again")
      ->type_name("DIR")
      ->required();
  command
      ->add_option(
          "--measure", options->measure,
          "metric: train each choice and test it by the task's metric, also called accuracy; gradient: "
          "the error in the gradient, as in ulp sensitivity")
      ->check(CLI::IsMember({"metric", "accuracy", "gradient"}))
      ->capture_default_str();
  command
      ->add_option("--seeds", options->seeds, "Measure with so many seeds, from --seed on, and take the mean")
      ->type_name("COUNT")
      ->capture_default_str();
  add_pilot_options(*command, *options);
  command->footer(
      "A model with G groups has 2^G choices; G is at most 12. Ctrl-C stops, the same command goes on.\n"
      "Examples:\n"
      "  ulp lab pareto --model lenet --data fashion-mnist --subset 5000 --epochs 2 --out pareto-lenet\n"
      "  ulp lab pareto --model resnet8 --data fashion-mnist --measure gradient --seeds 1 --out "
      "pareto-resnet8");
  command->callback([options] { pareto_command(*options); });
}

}  // namespace

void add_lab_command(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("lab", "Experiments: what policies could reach at best, what rounding costs");
  command->require_subcommand(1);
  add_pareto_command(*command);
  add_least_squares_command(*command);
  add_memory_profile_command(*command);
  add_update_costs_command(*command);
}

}  // namespace ulp
