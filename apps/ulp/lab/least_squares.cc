// `ulp lab least-squares`: which rounding costs what, on a regression whose answer is known.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "apps/ulp/commands.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/lab/least_squares.h"

namespace ulp {
namespace {

struct LeastSquaresCommandOptions {
  LeastSquaresSetup setup;
  std::string format = "bf16";
  std::optional<std::string> out;
  int64_t seeds = 9;
};

void least_squares_command(LeastSquaresCommandOptions command) {
  command.setup.format = parse_format(command.format);
  const std::filesystem::path folder(command.out.value_or(""));
  if (command.out) {
    if (command.out->empty()) fail("lab", "--out is empty: name the folder to write to");
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail("lab", "cannot make the folder {}: {}", *command.out, error.message());
  }
  const std::vector<LeastSquaresResult> results = measure_least_squares(command.setup, command.seeds);
  fmt::print(
      "{}: {} dimensions, {} examples, {} steps at {}, {} seed{}; medians of the last quarter of all "
      "steps\n\n{}",
      format_name(command.setup.format), command.setup.dimensions, command.setup.examples,
      command.setup.steps, command.setup.lr, command.seeds, command.seeds == 1 ? "" : "s",
      least_squares_table(results));
  fmt::print("\nw* itself, rounded to {}, has an excess of {:.4g}\n", format_name(command.setup.format),
             median_rounding_excess(command.setup, command.seeds));
  if (results.back().variant.name != "extra:8") {
    fmt::print("no extra:8: extra bits go beside formats of 8 and 16 bits\n");
  }
  if (!command.out) return;
  write_file_atomically((folder / "least-squares.csv").string(), least_squares_csv(results));
  write_file_atomically((folder / "least-squares.svg").string(), least_squares_svg(command.setup, results));
  fmt::print("\nwritten to {}: least-squares.csv, least-squares.svg\n", *command.out);
}

}  // namespace

void add_least_squares_command(CLI::App& lab) {
  CLI::App* command = lab.add_subcommand(
      "least-squares", "Train a linear regression with each kind of rounding, and see where the loss stays");
  auto options = std::make_shared<LeastSquaresCommandOptions>();
  command->add_option("--format", options->format, "What is rounded to: a plain format of at most 16 bits")
      ->type_name("FORMAT")
      ->capture_default_str();
  const auto number = [&](const char* name, auto& value, const char* what, const char* type) {
    command->add_option(name, value, what)->type_name(type)->capture_default_str();
  };
  number("--steps", options->setup.steps, "Steps of SGD, one example each", "COUNT");
  number("--lr", options->setup.lr, "The learning rate", "RATE");
  number("--seeds", options->seeds, "Problems to run, seeds from 0 on; figures are medians over them",
         "COUNT");
  number("--noise", options->setup.noise, "Standard deviation of the labels' noise", "SIZE");
  number("--dimensions", options->setup.dimensions, "Numbers in an input", "COUNT");
  number("--examples", options->setup.examples, "Examples that steps draw from", "COUNT");
  command->add_option("--out", options->out, "A folder for least-squares.csv and least-squares.svg")
      ->type_name("DIR");
  command->footer(
      "fp32: nothing is rounded. weights: the new weight, to nearest. forward/backward: activation and "
      "gradients.\n"
      "all nearest: both. stochastic, kahan, extra:8: both, with that way of writing weights (ulp train "
      "--update).\n"
      "loss: of each step's example. excess: |w - w*|^2 / 2, what fresh inputs would cost without noise.\n"
      "cancelled: updates that changed nothing that is stored; rounded at random, they still count in the "
      "mean.\n"
      "Examples:\n"
      "  ulp lab least-squares --out least-squares\n"
      "  ulp lab least-squares --format e8m5 --lr 0.001 --steps 200000\n"
      "  ulp lab least-squares --format fp16 --noise 0 --seeds 25");
  command->callback([options] { least_squares_command(*options); });
}

}  // namespace ulp
