// What the weights of a run are good for: `ulp eval` says how they do on the test set, `ulp predict`
// what they make of other pictures, `ulp export` writes them as PyTorch reads them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>

#include "apps/ulp/commands.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/run/export.h"
#include "ulp/run/metric_line.h"
#include "ulp/run/predict.h"
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
    if (!result.classes_fp32.empty())
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
               result.classes_fp32.empty() ? "-" : share(result.classes_fp32[i]));
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
    name_metric(json, trainer.task().metrics().front());
    if (!result.classes.empty()) json["classes"] = classes_json(result);
    fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  std::string text;
  for (size_t i = 0; i < result.metrics.size(); ++i) {
    const std::string fp32 = result.metrics_fp32.empty()
                                 ? ""
                                 : fmt::format(" ({} computed in fp32)", metric_text(result.metrics_fp32[i]));
    text += fmt::format("test {} {}{}, ", metric_title(result.metrics[i].name),
                        metric_text(result.metrics[i]), fp32);
  }
  fmt::print("{} after {} steps: {}loss {:.4f}\n", run.checkpoint, trainer.progress().step, text,
             result.loss);
  print_classes(result);
}

struct PredictCommand {
  std::string folder, which, device;
  std::vector<std::string> files;
  int64_t top = 3;
  bool fp32 = false, json = false;
};

Json prediction_json(const Predictor& predictor, const std::string& file, const Prediction& made) {
  Json scores = Json::array(), probabilities = Json::array();
  for (const float score : made.scores) scores.push_back(json_number(score));
  for (const double share : made.probabilities) probabilities.push_back(json_number(share));
  const size_t best = made.best();
  return {{"file", file},
          {"class", predictor.class_name(best)},
          {"label", best},
          {"probability", json_number(made.probabilities[best])},
          {"probabilities", probabilities},
          {"scores", scores}};
}

// The likeliest classes, the first of equals first.
void print_prediction(const Predictor& predictor, const std::string& file, const Prediction& made,
                      size_t top) {
  std::vector<size_t> order(made.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return made.scores[a] > made.scores[b]; });
  std::string text;
  for (size_t i = 0; i < std::min(top, order.size()); ++i) {
    text += fmt::format("{}{} {:.2f}%", i == 0 ? "" : ", ", printable(predictor.class_name(order[i])),
                        100 * made.probabilities[order[i]]);
  }
  fmt::print("{}: {}\n", file, text);
}

void predict_command(const PredictCommand& command) {
  if (command.top < 1) fail("predict", "--top must be 1 or more, got {}", command.top);
  const SavedRun run = open_run("predict", command.folder, command.which);
  if (!run.note.empty()) fmt::print(stderr, "ulp: {}\n", run.note);
  Predictor predictor(run, command.files.size(), command.device);
  const std::vector<Prediction> made = predictor.predict(command.files, command.fp32);
  if (!command.json) {
    for (size_t i = 0; i < made.size(); ++i)
      print_prediction(predictor, command.files[i], made[i], static_cast<size_t>(command.top));
    return;
  }
  Json images = Json::array();
  for (size_t i = 0; i < made.size(); ++i)
    images.push_back(prediction_json(predictor, command.files[i], made[i]));
  const Json json = {{"checkpoint", run.checkpoint}, {"step", predictor.step()}, {"images", images}};
  fmt::print("{}\n", json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

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

void add_predict_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("predict", "Put pictures into classes by the network of a run");
  auto command = std::make_shared<PredictCommand>();
  app->add_option("DIR", command->folder, "The run's folder")->required();
  app->add_option("IMAGE", command->files, "PNG and JPEG files")->required();
  app->add_option("--checkpoint", command->which, "best or last; best where there is one, unless named")
      ->check(CLI::IsMember({"best", "last"}));
  app->add_option("--top", command->top, "How many classes to print of each picture")->capture_default_str();
  app->add_option("--device", command->device, "Where to compute; where the run was trained, unless named")
      ->type_name("NAME");
  app->add_flag("--fp32", command->fp32, "Compute in fp32 from the weights as they are stored");
  app->add_flag("--json", command->json, "Print JSON: all probabilities, and the scores before the softmax");
  app->footer(
      "Pictures are scaled and normalised as those of the training set were.\n"
      "Examples:\n"
      "  ulp predict runs/pets cat.png dog.jpg\n"
      "  ulp predict runs/pets photos/*.jpg --top 1\n"
      "  ulp predict runs/pets cat.png --json");
  app->callback([command] { predict_command(*command); });
}

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
