// `ulp lab update-costs`: what rules for weight updates are worth, from runs that a sweep has made.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/lab/update_costs.h"

namespace ulp {
namespace {

struct UpdateCostsOptions {
  std::string folder, out;
};

void update_costs_command(const UpdateCostsOptions& options) {
  const std::vector<UpdateCost> costs = update_costs(find_update_runs(options.folder));
  fmt::print("{}", update_costs_markdown(costs));
  if (options.out.empty()) return;
  std::error_code error;
  const std::filesystem::path folder(options.out);
  std::filesystem::create_directories(folder, error);
  if (error) fail("lab", "cannot make the folder {}: {}", options.out, error.message());
  write_file_atomically((folder / "update-costs.csv").string(), update_costs_csv(costs));
  write_file_atomically((folder / "update-costs.svg").string(), update_costs_svg(costs));
  fmt::print("\nwritten to {}: update-costs.csv, update-costs.svg\n", options.out);
}

}  // namespace

void add_update_costs_command(CLI::App& lab) {
  CLI::App* command = lab.add_subcommand(
      "update-costs",
      "What update rules are worth: metric, loss and cancelled updates by the bytes of a weight");
  auto options = std::make_shared<UpdateCostsOptions>();
  command
      ->add_option("folder", options->folder, "Of a sweep, or of any runs; those that are finished are read")
      ->type_name("DIR")
      ->required();
  command->add_option("--out", options->out, "Write update-costs.csv and update-costs.svg to this folder")
      ->type_name("DIR");
  command->footer(
      "Runs with --groups or --weight assigned have no one figure and are passed over.\n"
      "Example:\n"
      "  ulp sweep experiments/updates.toml --out runs/updates && ulp lab update-costs runs/updates --out "
      "costs");
  command->callback([options] { update_costs_command(*options); });
}

}  // namespace ulp
