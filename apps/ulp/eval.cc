// `ulp eval`: the test set once more, with the weights of a run.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

struct EvalOptions {
  std::string folder, which = "best", data_dir;
  bool json = false;
};

void eval_command(const EvalOptions& options) {
  if (options.folder.empty()) fail("eval", "DIR is empty: name the folder of a run");
  const std::filesystem::path file = std::filesystem::path(options.folder) / "config.toml";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    fail("eval", "{} holds no run: there is no {}", options.folder, file.string());
  }
  RunConfig config = load_config(file.string());
  config.out = options.folder;
  if (!options.data_dir.empty()) config.data_dir = options.data_dir;
  const std::string checkpoint = options.folder + "/" + options.which + ".safetensors";
  if (!std::filesystem::exists(checkpoint, error)) {
    fail("eval", "{} is not there yet: the run has not come to a checkpoint", checkpoint);
  }
  Observer quiet;
  Trainer trainer(config, quiet);
  const Evaluation result = trainer.evaluate(options.which);
  if (options.json) {
    Json json = {{"checkpoint", checkpoint},
                 {"step", trainer.progress().step},
                 {"test_loss", json_number(result.loss)}};
    for (const MetricValue& metric : result.metrics) json["test_" + metric.name] = json_number(metric.value);
    for (const MetricValue& metric : result.metrics_fp32)
      json["test_" + metric.name + "_fp32"] = json_number(metric.value);
    fmt::print("{}\n", json.dump());
    return;
  }
  std::string text;
  for (size_t i = 0; i < result.metrics.size(); ++i) {
    text += fmt::format("test {} {} ({} computed in fp32), ", metric_title(result.metrics[i].name),
                        metric_text(result.metrics[i]), metric_text(result.metrics_fp32[i]));
  }
  fmt::print("{} after {} steps: {}loss {:.4f}\n", checkpoint, trainer.progress().step, text, result.loss);
}

}  // namespace

void add_eval_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("eval", "Test the weights of a run");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("DIR", options->folder, "The run's folder")->required();
  command->add_option("--checkpoint", options->which, "best or last")
      ->check(CLI::IsMember({"best", "last"}))
      ->capture_default_str();
  command->add_option("--data-dir", options->data_dir,
                      "Where the data is now, if not where the run found it");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Examples:\n  ulp eval runs/lenet\n  ulp eval runs/lenet --checkpoint last --json");
  command->callback([options] { eval_command(*options); });
}

}  // namespace ulp
