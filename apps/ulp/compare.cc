// `ulp compare`: two configurations against each other, over the seeds that each has run with.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/ulp/commands.h"
#include "apps/ulp/environment.h"
#include "apps/ulp/progress.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/report/comparison.h"
#include "ulp/report/found_run.h"
#include "ulp/report/runs_table.h"
#include "ulp/report/sparkline.h"

namespace ulp {
namespace {

struct CompareOptions {
  std::string a, b;
  bool json = false;
};

// The folder itself if there is one of that name, which may have a star in it; else what a pattern names.
std::vector<std::string> folders_of(const std::string& name) {
  if (std::filesystem::exists(name) || name.find_first_of("*?[") == name.npos) return {name};
  glob_t found{};
  const int code = ::glob(name.c_str(), 0, nullptr, &found);
  std::vector<std::string> folders;
  for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) {
    if (std::filesystem::is_directory(found.gl_pathv[i])) folders.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (folders.empty()) fail("compare", "no folder is named like {}", name);
  return folders;
}

NamedRuns runs_of(const std::string& name) {
  NamedRuns named{name, read_figures(find_runs(folders_of(name)).runs)};
  // Of ten and more seeds too in the order of numbers.
  std::stable_sort(named.runs.begin(), named.runs.end(), [](const RunRecord& x, const RunRecord& y) {
    const std::string a = setting_of(x, "seed"), b = setting_of(y, "seed");
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return named;
}

using Show = std::function<std::string(double)>;

// "93.12 (92.90..93.31)"; the range where there are several.
std::string spread_text(const SeedValues& spread, const Show& show) {
  if (spread.count() == 0) return "-";
  const std::string mean = show(*spread.mean()), least = show(*spread.least()), most = show(*spread.most());
  return least == most ? mean : fmt::format("{} ({}..{})", mean, least, most);
}

// Of b against a: "-12.3%".
std::string change_text(const SeedValues& a, const SeedValues& b) {
  if (a.count() == 0 || b.count() == 0 || *a.mean() == 0) return "";
  return fmt::format("{:+.1f}%", 100 * (*b.mean() / *a.mean() - 1));
}

struct Line {
  std::string name, a, b, change = {};
};

void print_lines(std::string& text, const std::vector<Line>& lines) {
  size_t name = 0, a = 0, b = 0;
  for (const Line& line : lines) {
    name = std::max(name, text_columns(line.name));
    a = std::max(a, text_columns(line.a));
    b = std::max(b, text_columns(line.b));
  }
  const auto padded = [](const std::string& cell, size_t width) {
    return cell + std::string(width - text_columns(cell), ' ');
  };
  for (const Line& line : lines) {
    std::string row = "  " + padded(line.name, name) + "  " + padded(line.a, a) + "  " + padded(line.b, b) +
                      "  " + line.change;
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
}

// A difference in the units of the metric's column; percent are points.
std::string difference_text(const Score& score, double value) {
  return score.percent() ? fmt::format("{:+.2f}", 100 * value) : fmt::format("{:+.4f}", value);
}

std::string verdict_text(const Comparison& found) {
  const Difference& difference = found.difference;
  const size_t a = found.a.best.count(), b = found.b.best.count();
  if (!difference.d) return fmt::format("not decided: {} has no {}", a == 0 ? "A" : "B", found.score.word());
  const std::string d = difference_text(found.score, *difference.d);
  const char* const points = found.score.percent() ? " points" : "";
  const std::string more =
      "more seeds decide: ulp train --config RUN/config.toml --seed N --out FOLDER, once for each seed and "
      "side";
  if (!difference.h) {
    return fmt::format(
        "not decided: B - A is {}{}, and without two seeds of a side it is unknown how much seeds "
        "make\n{}",
        d, points, more);
  }
  std::string text = fmt::format("{}: B - A is {} {} {}{}", verdict_name(difference.verdict), d,
                                 output_is_utf8() ? "±" : "+/-",
                                 difference_text(found.score, *difference.h).substr(1), points);
  text += fmt::format("  (1.7 s sqrt(1/{} + 1/{}), s {})", a, b,
                      difference_text(found.score, *difference.s).substr(1));
  if (difference.verdict != Verdict::not_decided) return text;
  if (const size_t seeds = seeds_to_decide(found); seeds > 0)
    text += fmt::format("\nif that difference is real, about {} more {} a side would show it", seeds,
                        seeds == 1 ? "seed" : "seeds");
  return text + "\n" + more;
}

std::string comparison_text(const Comparison& found) {
  const auto bytes = [](double value) { return bytes_text(value); };
  const auto bits = [](double value) { return bytes_text(value / 8); };
  const auto percent = [](double value) { return fmt::format("{:.2f}%", 100 * value); };
  const auto plain = [](double value) { return fmt::format("{:.4g}", value); };
  const auto score = [&](double value) { return found.score.number(value); };
  const ComparedSide &a = found.a, &b = found.b;

  std::string text;
  std::vector<Line> lines = {
      {"", "A: " + printable(a.name), "B: " + printable(b.name)},
      {"seeds", fmt::format("{}", fmt::join(a.seeds, " ")), fmt::format("{}", fmt::join(b.seeds, " "))}};
  for (const Comparison::Setting& setting : found.settings)
    lines.push_back({setting.name, printable(setting.a), printable(setting.b)});
  if (found.settings.empty()) lines.push_back({"settings", "the same but for the seed", "the same"});
  const auto row = [&](const char* name, SeedValues ComparedSide::*spread, const Show& show) {
    lines.push_back({name, spread_text(a.*spread, show), spread_text(b.*spread, show),
                     change_text(a.*spread, b.*spread)});
  };
  lines.push_back({"best test " + found.score.title(), spread_text(a.best, score), spread_text(b.best, score),
                   found.difference.d ? difference_text(found.score, *found.difference.d) : ""});
  row("train loss", &ComparedSide::train_loss, loss_text);
  row("aggregate", &ComparedSide::aggregate_bits, bits);
  row("peak memory", &ComparedSide::peak_bytes, bytes);
  row("time", &ComparedSide::seconds, duration_text);
  row("low ratio", &ComparedSide::low_ratio, percent);
  row("promotions", &ComparedSide::promotions, plain);
  if (a.diverged + b.diverged > 0)
    lines.push_back({"diverged", std::to_string(a.diverged), std::to_string(b.diverged)});
  print_lines(text, lines);
  text += "\n" + verdict_text(found) + "\n";
  for (const std::string& note : found.notes) text += "note: " + printable(note) + "\n";
  return text;
}

Json spread_json(const SeedValues& spread) {
  Json values = Json::array();
  for (const double value : spread.values) values.push_back(json_number(value));
  return {{"mean", json_number(spread.mean())},
          {"least", json_number(spread.least())},
          {"most", json_number(spread.most())},
          {"values", values}};
}

Json side_json(const ComparedSide& side) {
  return {{"name", side.name},
          {"runs", side.runs},
          {"seeds", side.seeds},
          {"best", spread_json(side.best)},
          {"train_loss", spread_json(side.train_loss)},
          {"last_loss", spread_json(side.last_loss)},
          {"aggregate_bits", spread_json(side.aggregate_bits)},
          {"peak_bytes", spread_json(side.peak_bytes)},
          {"seconds", spread_json(side.seconds)},
          {"low_ratio", spread_json(side.low_ratio)},
          {"promotions", spread_json(side.promotions)},
          {"diverged", side.diverged},
          {"unfinished", side.unfinished}};
}

Json comparison_json(const Comparison& found) {
  Json settings = Json::array();
  for (const Comparison::Setting& setting : found.settings)
    settings.push_back({{"name", setting.name}, {"a", setting.a}, {"b", setting.b}});
  return {{"metric", found.score.name},
          {"higher_is_better", found.score.higher_is_better},
          {"settings", settings},
          {"a", side_json(found.a)},
          {"b", side_json(found.b)},
          {"difference", json_number(found.difference.d)},
          {"half_width", json_number(found.difference.h)},
          {"deviation", json_number(found.difference.s)},
          {"verdict", verdict_name(found.difference.verdict)},
          {"more_seeds", seeds_to_decide(found)},
          {"notes", found.notes}};
}

void compare_command(const CompareOptions& options) {
  PlanBook book;
  const Comparison found = compare_runs(runs_of(options.a), runs_of(options.b), book);
  fmt::print("{}", options.json ? json_text(comparison_json(found)) + "\n" : comparison_text(found));
}

}  // namespace

void add_compare_command(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("compare", "Two configurations against each other, over their seeds");
  auto options = std::make_shared<CompareOptions>();
  const char* const what = "A run, or a folder or pattern of runs that differ in the seed only";
  command->add_option("A", options->a, what)->required();
  command->add_option("B", options->b, what)->required();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "B is better or worse than A where the difference of the means of the best epochs is more than\n"
      "h = 1.7 s sqrt(1/nA + 1/nB), s being the standard deviation between seeds, pooled. Else it is not\n"
      "decided, as with a single seed each. Figures are means, with the least and the most in parentheses.\n"
      "Examples:\n"
      "  ulp compare runs/fp32 runs/fp8\n"
      "  ulp compare 'runs/assign/fp32-s*' 'runs/assign/size_0.5-s*' --json");
  command->callback([options] { compare_command(*options); });
}

}  // namespace ulp
