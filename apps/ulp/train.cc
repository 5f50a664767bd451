// `ulp train`: a training run from flags or a file, or one that goes on.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string_view>

#include "apps/ulp/commands.h"
#include "apps/ulp/options.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/stop.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/run/idle.h"
#include "ulp/run/trainer.h"

namespace ulp {
namespace {

struct TrainOptions {
  RunOptions run;
  std::string resume;
  const CLI::Option* resume_option = nullptr;
};

RunConfig resumed_config(const TrainOptions& options) {
  if (options.run.file_option->count() > 0)
    fail("train", "--resume goes on with the run's own configuration: leave --config out");
  // What decides no bit of what is done already.
  constexpr std::string_view kFree[] = {"data_dir", "threads", "epochs"};
  for (const RunOptions::Flag& flag : options.run.flags) {
    const bool free = std::find(std::begin(kFree), std::end(kFree), flag.field->name) != std::end(kFree);
    if (flag.option->count() > 0 && !free) {
      fail("train",
           "--resume goes on with the run's own configuration: leave {} out; --data-dir, --threads and more "
           "--epochs may change",
           flag.field->flag());
    }
  }
  if (options.resume.empty()) fail("train", "--resume is empty: name the folder of a run");
  const std::filesystem::path folder(options.resume), file = folder / "config.toml";
  if (std::error_code error; !std::filesystem::exists(file, error)) {
    fail("train", "{} holds no run: there is no {}", options.resume, file.string());
  }
  RunConfig config = load_config(file.string());
  const RunConfig given = options.run.settings();
  for (const RunOptions::Flag& flag : options.run.flags) {
    if (flag.option->count() == 0) continue;
    // As many as there are already is fine: the command that made a run longer may be given again
    // after a kill.
    if (flag.field->name == "epochs" && (config.steps > 0 || given.epochs < config.epochs)) {
      fail(
          "train", "{} has {}: --epochs can only be more of a run by epochs", options.resume,
          config.steps > 0 ? fmt::format("{} steps", config.steps) : fmt::format("{} epochs", config.epochs));
    }
    flag.field->set(config, flag.field->get(given));
  }
  set_default_kernels("");
  // The folder may have moved since.
  config.out = options.resume;
  return config;
}

// Until a run starts there is nothing to save: a signal ends it at once, as it ends any program.
class StoppableProgress : public Progress {
 public:
  using Progress::Progress;

  void on_start(const StartReport& report) override {
    listen_for_stop();
    Progress::on_start(report);
  }
};

void train_command(const TrainOptions& options) {
  const bool resume = options.resume_option->count() > 0;
  const RunConfig config = resume ? resumed_config(options) : options.run.config();
  if (!resume) refuse_idle_options(config, options.run.given());
  StoppableProgress progress(standard_output(), config.checkpoint_every);
  switch (train(config, resume, progress, stop_asked())) {
    case Outcome::finished:
      return;
    case Outcome::was_finished:
      progress.on_note(config.out + " is finished: there is nothing to resume");
      return;
    case Outcome::interrupted:
      break;
  }
  progress.on_note("stopped; go on with: ulp train --resume " + shell_quoted(progress.folder()));
  throw Stopped();
}

}  // namespace

void add_train_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("train", "Train a model");
  auto options = std::make_shared<TrainOptions>();
  options->resume_option = command
                               ->add_option("--resume", options->resume,
                                            "Go on with the run in this folder, from its last checkpoint")
                               ->type_name("DIR");
  add_run_options(*command, options->run);
  command->footer(
      "The run's folder gets config.toml, metrics.jsonl, last.safetensors and best.safetensors. Ctrl-C saves "
      "and stops.\n"
      "Examples:\n"
      "  ulp train --model resnet20 --data fashion-mnist --epochs 3\n"
      "  ulp train --task clicks --data synthetic-clicks --model dlrm --lr 0.1 --epochs 1\n"
      "  ulp train --model lenet --data mnist --data-dir ~/data --optimizer adam --out runs/lenet\n"
      "  ulp train --config runs/lenet/config.toml --seed 1 --out runs/lenet-1\n"
      "  ulp train --resume runs/lenet\n"
      "  ulp train --resume runs/lenet --epochs 20");
  command->callback([options] { train_command(*options); });
}

}  // namespace ulp
