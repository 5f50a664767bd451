// `ulp runs`: the runs below a folder as a table, or as JSON lines.
#include <fmt/format.h>

#include <ctime>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "apps/ulp/commands.h"
#include "apps/ulp/environment.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/report/found_run.h"
#include "ulp/report/runs_table.h"

namespace ulp {
namespace {

struct RunsOptions {
  std::string folder = "runs", sort = "age";
  bool json = false, ascii = false;
};

RunLine line_of(const RunRecord& run, int64_t now) {
  RunLine line;
  line.run = printable(run.id);
  line.state = run_state_name(run.state);
  line.progress = progress_text(run);
  if (run.best) line.best = run.score.name + " " + run.score.text(*run.best);
  if (run.last_loss) line.loss = loss_text(*run.last_loss);
  if (run.peak_bytes) line.peak = bytes_text(*run.peak_bytes);
  line.age = age_text(now - run.changed);
  line.curve = run.curve.loss;
  return line;
}

std::string json_line(const RunRecord& run) {
  const RunLength length = length_of(run);
  Json json = {{"run", run.id},
               {"folder", run.folder},
               {"state", run_state_name(run.state)},
               {"steps", run.steps},
               {"total_steps", length.steps > 0 ? Json(length.steps) : Json()},
               {"epochs", run.epochs.count() == 0 ? 0 : run.epochs.epoch.back()},
               {"total_epochs", length.epochs > 0 ? Json(length.epochs) : Json()},
               {"metric", run.score.name},
               {"higher_is_better", run.score.higher_is_better},
               {"best", json_number(run.best)},
               {"best_fp32", json_number(run.best_fp32)},
               {"last_loss", json_number(run.last_loss)},
               {"peak_bytes", json_number(run.peak_bytes)},
               {"seconds", json_number(run.seconds)},
               {"promotions", run.promotions.size()},
               {"skipped", run.skipped},
               {"changed", run.changed},
               {"seed", setting_of(run, "seed")},
               {"group", run.group},
               {"label", run.label},
               {"notes", run.notes}};
  return json_text(json) + "\n";
}

void runs_command(const RunsOptions& options) {
  const RunOrder order = run_order(options.sort);
  const FoundFiles found = find_runs(std::vector<std::string>{options.folder});
  std::vector<RunRecord> runs = read_figures(found.runs);
  sort_runs(runs, order);
  std::string text;
  if (options.json) {
    for (const RunRecord& run : runs) text += json_line(run);
  } else if (runs.empty()) {
    text = fmt::format("no runs in {}\n", printable(options.folder));
  } else {
    const int64_t now = std::time(nullptr);
    std::vector<RunLine> lines;
    for (const RunRecord& run : runs) lines.push_back(line_of(run, now));
    text = runs_table(lines, output_columns(), options.ascii || !output_is_utf8());
  }
  fmt::print("{}", text);
}

}  // namespace

void add_runs_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("runs", "List the runs below a folder, and how far they are");
  auto options = std::make_shared<RunsOptions>();
  command->add_option("DIR", options->folder, "A run, or a folder above runs")->capture_default_str();
  command->add_option("--sort", options->sort, "age, name, metric or peak")->capture_default_str();
  command->add_flag("--ascii", options->ascii,
                    "Draw curves with ASCII letters, as where the locale has no UTF-8");
  command->add_flag("--json", options->json, "Print an object a line");
  command->footer(
      "The table fits the terminal (or COLUMNS): columns go where there is no room. best is the best test\n"
      "value so far, curve the training loss, peak the most memory, age the time since a file has changed.\n"
      "Examples:\n"
      "  ulp runs\n"
      "  ulp runs runs/assignments --sort metric\n"
      "  ulp runs --json | jq -r 'select(.state == \"diverged\") | .folder'");
  command->callback([options] { runs_command(*options); });
}

}  // namespace ulp
