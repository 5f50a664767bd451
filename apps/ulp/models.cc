// `ulp models`: what can be trained.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/text.h"
#include "ulp/models/model.h"
#include "ulp/tasks/task.h"

namespace ulp {
namespace {

// At width 1, for its own input and ten classes.
std::string input_text(const ModelInfo& info) {
  return fmt::format("{}x{}x{}", info.image.channels, info.image.height, info.image.width);
}

void models_command(bool json) {
  Json list = Json::array();
  if (!json) fmt::print("{:<14}{:>12}{:>10}  {:<20}{}\n", "name", "parameters", "input", "widths", "what");
  for (const ModelInfo& info : models()) {
    if (json) {
      list.push_back({{"name", info.name},
                      {"about", info.about},
                      {"parameters", info.parameters},
                      {"input", input_text(info)},
                      {"min_side", info.min_side},
                      {"widths", std::vector<double>(info.widths.begin(), info.widths.end())}});
      continue;
    }
    const std::string widths = info.widths.empty() ? fmt::format("up to {}", kMaxWidth)
                                                   : fmt::format("{}", fmt::join(info.widths, " "));
    fmt::print("{:<14}{:>12}{:>10}  {:<20}{}\n", info.name, info.parameters, input_text(info), widths,
               info.about);
  }
  if (json) {
    fmt::print("{}\n", list.dump());
  } else {
    fmt::print(
        "\nParameters at width 1 with 10 classes and the input shown (CxHxW). `ulp plan --model NAME` says "
        "more.\n\nFor other tasks:\n");
    for (const TaskInfo& task : tasks()) {
      if (&task == &tasks().front()) continue;  // classification, above
      fmt::print("  --task {:<12}--model {:<10}{}\n", task.name, fmt::join(task.models(), ", "), task.about);
    }
  }
}

}  // namespace

void add_models_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("models", "The models that can be trained");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->footer("Example:\n  ulp models");
  command->callback([json] { models_command(*json); });
}

}  // namespace ulp
