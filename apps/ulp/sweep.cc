// `ulp sweep`: a grid of training runs from one file, and a report of what they came to.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/environment.h"
#include "apps/ulp/job_progress.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/lab/report.h"
#include "ulp/lab/sweep.h"
#include "ulp/run/idle.h"

namespace ulp {
namespace {

struct SweepOptions {
  std::string file, out;
  int64_t jobs = 1;
  bool dry_run = false, report = false;
};

std::string folder_of(const SweepOptions& options) {
  if (!options.out.empty()) return options.out;
  return "runs/" + std::filesystem::path(options.file).stem().string();
}

Job job_of(const SweepRun& run, const std::string& out) {
  Job job{run.config()};
  job.config.out = out + "/" + run.folder;
  return job;
}

// Each folder once, in the order of the file.
JobList make_jobs(const std::vector<SweepRun>& runs, const std::string& out) {
  JobList list;
  for (const SweepRun& run : runs) {
    if (run.repeats) continue;
    list.jobs.push_back(job_of(run, out));
    list.names.push_back(run.folder);
  }
  return list;
}

std::string state_text(const Job& job) {
  try {
    const JobState state = job_state(job);
    return state == JobState::finished ? "  finished"
           : state == JobState::failed ? "  failed"
           : state == JobState::begun  ? "  begun"
                                       : "";
  } catch (const Error& error) {
    return fmt::format("  failed: {}", error.what());
  }
}

void show_runs(const std::vector<SweepRun>& runs, const std::string& out) {
  fmt::print("{} runs in {}\n",
             std::count_if(runs.begin(), runs.end(), [](const SweepRun& run) { return !run.repeats; }), out);
  for (const SweepRun& run : runs) {
    if (run.repeats) {
      fmt::print("  ({}: {} is {})\n", run.grid, axes_text(run.axes), run.folder);
      continue;
    }
    fmt::print("  {}{}\n", run.folder, state_text(job_of(run, out)));
  }
}

void write_text(const std::string& path, const std::string& text) { write_file_atomically(path, text); }

// One that cannot be read has failed, which is no reason not to report on the others.
SweepOutcome outcome_of(const SweepRun& run, const Job& job, const JobFailures& failures) {
  SweepOutcome outcome{&run};
  try {
    outcome.state = job_state(job);
    if (outcome.state == JobState::failed) outcome.error = job_error(job.config.out);
    outcome.result = read_result(job.config.out);
  } catch (const Error& error) {
    outcome.state = JobState::failed;
    outcome.error = error.what();
  }
  if (const auto failed = failures.find(job.config.out); failed != failures.end()) {
    outcome.state = JobState::failed;
    outcome.error = failed->second;
  }
  return outcome;
}

void write_report(const SweepOptions& options, const std::vector<SweepRun>& runs, const std::string& out,
                  const JobFailures& failures) {
  std::vector<SweepOutcome> outcomes;
  for (const SweepRun& run : runs) {
    outcomes.push_back(outcome_of(run, job_of(run, out), failures));
  }
  const std::string text = report_markdown(std::filesystem::path(options.file).stem().string(), outcomes);
  write_text(out + "/report.md", text);
  write_text(out + "/report.csv", report_csv(outcomes));
  fmt::print("\n{}\nwritten to {}/report.md and {}/report.csv\n", text, out, out);
}

// As the run itself would at its start, which one that has begun is past.
void refuse_idle(const SweepRun& run, const Job& job) {
  std::error_code error;
  if (std::filesystem::exists(job.config.out + "/last.safetensors", error)) return;
  try {
    refuse_idle_options(job.config);
  } catch (const Error& idle) {
    fail("sweep", "{}: {}", run.folder, idle.message());
  }
}

void sweep_command(const SweepOptions& options) {
  if (options.jobs < 1) fail("sweep", "--jobs is {}; it must be a whole number from 1", options.jobs);
  if (options.dry_run && options.report) fail("sweep", "--dry-run and --report exclude each other");
  const std::vector<SweepRun> runs = load_sweep(options.file, kernels_of_environment());
  const std::string out = folder_of(options);
  // Before anything runs: a folder that holds another run is found now.
  for (const SweepRun& run : runs) {
    if (run.repeats) continue;
    const Job job = job_of(run, out);
    refuse_other_run(job);
    if (!options.report) refuse_idle(run, job);
  }
  if (options.dry_run) {
    show_runs(runs, out);
    return;
  }
  if (options.report) {
    if (!std::filesystem::is_directory(out)) fail("sweep", "there is no folder {}: nothing has run yet", out);
    write_report(options, runs, out, {});
    return;
  }
  const auto lock = lock_job_folder(out);
  const JobFailures failures =
      run_visibly(make_jobs(runs, out), static_cast<size_t>(options.jobs),
                  fmt::format("ulp sweep {} --out {} --jobs {}", shell_quoted(options.file),
                              shell_quoted(out), options.jobs));
  write_report(options, runs, out, failures);
  if (!failures.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_sweep_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("sweep", "Train a grid of configurations, and report on them");
  auto options = std::make_shared<SweepOptions>();
  command->add_option("FILE", options->file, "TOML file with [base] and [[grid]] tables")->required();
  command->add_option("--out", options->out, "Folder of the runs; runs/ and the file's name unless told")
      ->type_name("DIR");
  command->add_option("--jobs", options->jobs, "Runs at a time; they share the threads")
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run, "Check the file and list the runs");
  command->add_flag("--report", options->report, "Report on what has run so far, and run nothing");
  command->footer(
      "[base] has any options of ulp train, each [[grid]] a name, more options, and axes: lists of values.\n"
      "Every combination is a run, in a process of its own, in DIR/NAME/VALUES. Started again, a sweep "
      "skips\n"
      "what is finished and goes on with what was stopped or failed; Ctrl-C saves and stops. At the end "
      "there\n"
      "are DIR/report.md and DIR/report.csv; the exit code is 1 if a run failed.\n"
      "Example of a file:\n"
      "  [base]\n"
      "  data = \"fashion-mnist\"\n"
      "  epochs = 4\n"
      "  [[grid]]\n"
      "  name = \"assign\"\n"
      "  model = [\"squeezenet\", \"shufflenetv2\"]\n"
      "  policy = [\"fp32\", \"uniform\", \"size:0.5\"]\n"
      "  seed = [0, 1, 2]\n"
      "Examples:\n"
      "  ulp sweep experiments/assignments.toml --dry-run\n"
      "  ulp sweep experiments/assignments.toml --out runs/assignments --jobs 2\n"
      "  ulp sweep experiments/assignments.toml --out runs/assignments --report");
  command->callback([options] { sweep_command(*options); });
}

}  // namespace ulp
