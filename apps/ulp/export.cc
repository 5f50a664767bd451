// `ulp export`: the weights of a run alone, as PyTorch reads them.
#include "ulp/run/export.h"

#include <fmt/format.h>

#include <memory>

#include "apps/ulp/commands.h"
#include "ulp/base/error.h"

namespace ulp {
namespace {

struct ExportCommand {
  std::string folder, which, out, dtype = "stored", split = "high";
  const CLI::Option* out_option = nullptr;  // which tells "" from nothing
};

void export_command(const ExportCommand& command) {
  const SavedRun run = open_run("export", command.folder, command.which);
  if (!run.note.empty()) fmt::print(stderr, "ulp: {}\n", run.note);
  const std::string out =
      command.out_option->count() > 0 ? command.out : command.folder + "/weights.safetensors";
  const ExportReport report =
      export_weights(run, out, {.fp32 = command.dtype == "fp32", .whole = command.split == "whole"});
  fmt::print("{}: {} tensors of {} numbers, from {} after {} steps\n", out, report.tensors, report.elements,
             run.checkpoint, report.step);
}

}  // namespace

void add_export_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("export", "Write the weights of a run as PyTorch has them");
  auto command = std::make_shared<ExportCommand>();
  app->add_option("DIR", command->folder, "The run's folder")->required();
  command->out_option =
      app->add_option("--out", command->out, "Where the weights go; DIR/weights.safetensors unless named")
          ->type_name("FILE");
  app->add_option("--checkpoint", command->which, "best or last; best where there is one, unless named")
      ->check(CLI::IsMember({"best", "last"}));
  app->add_option("--dtype", command->dtype,
                  "stored: each tensor as it is stored, fp32 where safetensors has no such format; or fp32")
      ->check(CLI::IsMember({"stored", "fp32"}))
      ->capture_default_str();
  app->add_option("--split", command->split,
                  "Of weights with extra bits: high, the part that products read, or whole, both in fp32")
      ->check(CLI::IsMember({"high", "whole"}))
      ->capture_default_str();
  app->footer(
      "The file has weights and running statistics with PyTorch's names and layouts; in Python\n"
      "  model.load_state_dict(safetensors.torch.load_file('runs/lenet/weights.safetensors'))\n"
      "`ulp train --init FILE` starts from such a file.\n"
      "Examples:\n"
      "  ulp export runs/lenet\n"
      "  ulp export runs/lenet --checkpoint last --dtype fp32 --out lenet.safetensors");
  app->callback([command] { export_command(*command); });
}

}  // namespace ulp
