// `ulp report`: the plots of runs in one file of HTML.
#include "ulp/report/page.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>

#include "apps/ulp/commands.h"
#include "apps/ulp/pilot_options.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/report/document.h"

namespace ulp {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out, json;
  const CLI::Option *out_option = nullptr, *json_option = nullptr;
};

// Before minutes are spent on what cannot be written.
void check_target(const char* flag, const std::string& path) {
  std::error_code error;
  if (path.empty()) fail("report", "{} is empty: name a file", flag);
  if (fs::is_directory(path, error)) fail("report", "{} is {}, a folder: name a file in it", flag, path);
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty() && !fs::is_directory(parent, error))
    fail("report", "cannot write {}: there is no folder {}", path, parent.string());
}

std::string counted(size_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

void report_command(const ReportOptions& options) {
  const bool page = options.out_option->count() > 0 || options.json_option->count() == 0;
  if (page && page_template().empty())
    fail("report", "this build has no page: {}; --json FILE writes the document alone", why_no_page());
  const FoundFiles found = find_runs(options.folders);
  if (found.empty()) {
    fail("report",
         "there is no run in {}: a run is a folder with a config.toml, as ulp train leaves it (files of ulp "
         "bench step --json and folders of ulp lab least-squares are shown too)",
         found.title);
  }
  const std::string out =
      options.out_option->count() > 0 ? options.out : (fs::path(options.folders[0]) / "report.html").string();
  if (page) check_target("--out", out);
  if (options.json_option->count() > 0) check_target("--json", options.json);

  const Report report = [&] {
    WorkLine line("reading runs");
    return read_report(found, [&](size_t done, size_t all) { line.draw(done, all, done); });
  }();
  PlanBook book;
  const std::string document = [&] {
    WorkLine line("planning their steps");
    return document_of(report, book, [&](size_t done, size_t all) { line.draw(done, all, done); });
  }();

  std::string held = counted(report.runs.size(), "run");
  if (!report.benches.empty()) held += ", " + counted(report.benches.size(), "benchmark");
  if (!report.least_squares.empty()) held += ", " + counted(report.least_squares.size(), "experiment");
  const auto say = [&](const std::string& path, size_t bytes) {
    fmt::print("written to {}: {}, {}\n", printable(path), held, bytes_text(static_cast<double>(bytes)));
  };
  if (options.json_option->count() > 0) {
    write_file_atomically(options.json, document);
    say(options.json, document.size());
  }
  if (page) {
    const std::string text = make_page(page_template(), document);
    write_file_atomically(out, text);
    say(out, text.size());
  }
  for (const std::string& note : report.notes) fmt::print(stderr, "note: {}\n", printable(note));
  for (const RunRecord& run : report.runs) {
    if (run.state == RunState::diverged || run.state == RunState::failed) continue;
    for (const std::string& note : run.notes)
      fmt::print(stderr, "note: {}: {}\n", printable(run.id), printable(note));
  }
}

}  // namespace

void add_report_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "report", "Plots of runs: memory against accuracy, curves, ranges, plans, in one file for a browser");
  auto options = std::make_shared<ReportOptions>();
  command->add_option("DIR", options->folders, "Runs, or folders above runs")->required();
  options->out_option =
      command
          ->add_option("--out", options->out, "The page to write; report.html in the first DIR unless said")
          ->type_name("FILE");
  options->json_option = command
                             ->add_option("--json", options->json,
                                          "Write what the page shows as JSON, and no page without --out")
                             ->type_name("FILE");
  command->footer(
      "A run is a folder with a config.toml. Beside runs, files of `ulp bench step --json` and folders of "
      "`ulp lab\n"
      "least-squares --out` are shown. The page is one file, needs no network and may be sent to others.\n"
      "Examples:\n"
      "  ulp report runs\n"
      "  ulp report runs/lenet-half runs/lenet-fp32 --out halves.html\n"
      "  ulp report sweep --json sweep.json");
  command->callback([options] { report_command(*options); });
}

}  // namespace ulp
