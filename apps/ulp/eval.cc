// `ulp eval`: the test set once more, with the weights of a run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "apps/ulp/commands.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/text.h"
#include "ulp/run/saved_run.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

struct EvalOptions {
  std::string folder, which, data_dir;
  bool json = false;
};

double share_right(const ClassCount& counted) {
  return static_cast<double>(counted.right) / static_cast<double>(counted.examples);
}

Json classes_json(const Evaluation& result) {
  Json classes = Json::array();
  for (size_t i = 0; i < result.classes.size(); ++i) {
    const ClassCount& own = result.classes[i];
    Json entry = {{"class", own.name}, {"examples", own.examples}};
    // A class of which the test set has no example has no accuracy.
    entry["test_acc"] = own.examples == 0 ? Json() : Json(share_right(own));
    entry["test_acc_fp32"] = own.examples == 0 ? Json() : Json(share_right(result.classes_fp32[i]));
    classes.push_back(std::move(entry));
  }
  return classes;
}

void print_classes(const Evaluation& result) {
  if (result.classes.empty()) return;
  size_t width = std::string_view("class").size();
  for (const ClassCount& counted : result.classes) width = std::max(width, counted.name.size());
  fmt::print("{:<{}}  {:>8}  {:>8}  {:>8}\n", "class", width, "examples", "right", "in fp32");
  for (size_t i = 0; i < result.classes.size(); ++i) {
    const ClassCount& own = result.classes[i];
    const auto share = [&](const ClassCount& of) {
      return of.examples == 0 ? "-" : share_text(share_right(of));
    };
    fmt::print("{:<{}}  {:>8}  {:>8}  {:>8}\n", printable(own.name), width, own.examples, share(own),
               share(result.classes_fp32[i]));
  }
}

void eval_command(const EvalOptions& options) {
  const SavedRun run = open_run("eval", options.folder, options.which);
  RunConfig config = run.config;
  if (!options.data_dir.empty()) config.data_dir = options.data_dir;
  Observer quiet;
  Trainer trainer(config, quiet, true);
  const Evaluation result = trainer.evaluate(run.which);
  if (!run.note.empty()) fmt::print(stderr, "ulp: {}\n", run.note);
  if (options.json) {
    Json json = {{"checkpoint", run.checkpoint},
                 {"step", trainer.progress().step},
                 {"test_loss", json_number(result.loss)}};
    for (const MetricValue& metric : result.metrics) json["test_" + metric.name] = json_number(metric.value);
    for (const MetricValue& metric : result.metrics_fp32)
      json["test_" + metric.name + "_fp32"] = json_number(metric.value);
    if (!result.classes.empty()) json["classes"] = classes_json(result);
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  std::string text;
  for (size_t i = 0; i < result.metrics.size(); ++i) {
    text += fmt::format("test {} {} ({} computed in fp32), ", metric_title(result.metrics[i].name),
                        metric_text(result.metrics[i]), metric_text(result.metrics_fp32[i]));
  }
  fmt::print("{} after {} steps: {}loss {:.4f}\n", run.checkpoint, trainer.progress().step, text,
             result.loss);
  print_classes(result);
}

}  // namespace

void add_eval_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("eval", "Test the weights of a run");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("DIR", options->folder, "The run's folder")->required();
  command->add_option("--checkpoint", options->which, "best or last; best where there is one, unless named")
      ->check(CLI::IsMember({"best", "last"}));
  command->add_option("--data-dir", options->data_dir,
                      "Where the data is now, if not where the run found it");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer("Examples:\n  ulp eval runs/lenet\n  ulp eval runs/lenet --checkpoint last --json");
  command->callback([options] { eval_command(*options); });
}

}  // namespace ulp
