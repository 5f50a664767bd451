#include "ulp/lab/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "ulp/lab/table.h"

namespace ulp {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<AxisValue> without_seed(const std::vector<AxisValue>& axes) {
  std::vector<AxisValue> rest;
  for (const AxisValue& axis : axes) {
    if (axis.key != "seed") rest.push_back(axis);
  }
  return rest;
}

// The metric of a run. If the run has finished no epoch, only the default task's metric is known.
std::optional<Score> score_of(const SweepOutcome& outcome) {
  if (outcome.result.epochs > 0) return outcome.result.score();
  if (outcome.run->config().task == RunConfig{}.task) return Score{};
  return std::nullopt;
}

// The score of all rows that have one; none where they differ.
std::optional<Score> common_score(std::span<const ReportRow> rows) {
  std::optional<Score> common;
  for (const ReportRow& row : rows) {
    if (common && row.score && *common != *row.score) return std::nullopt;
    if (row.score) common = row.score;
  }
  return common;
}

template <typename Value>
Spread spread_of(const std::vector<const RunResult*>& results, Value value) {
  if (results.empty()) return {kNone, kNone, kNone};
  Spread spread{0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const RunResult* result : results) {
    const auto x = static_cast<double>(value(*result));
    spread.mean += x / static_cast<double>(results.size());
    spread.least = std::min(spread.least, x);
    spread.most = std::max(spread.most, x);
  }
  if (std::isnan(spread.mean)) return {kNone, kNone, kNone};
  return spread;
}

void fill(ReportRow& row, const std::vector<const RunResult*>& results) {
  row.best = spread_of(results, [](const RunResult& r) { return r.best; });
  row.best_fp32 = spread_of(results, [](const RunResult& r) { return r.best_fp32; });
  row.train_loss = spread_of(results, [](const RunResult& r) { return r.train_loss; }).mean;
  row.low_ratio =
      spread_of(results, [](const RunResult& r) { return r.epochs == 0 ? kNone : r.low_ratio; }).mean;
  row.promotions = spread_of(results, [](const RunResult& r) { return r.promotions; }).mean;
  row.skipped = spread_of(results, [](const RunResult& r) { return r.skipped; }).mean;
  row.seconds = spread_of(results, [](const RunResult& r) { return r.seconds; }).mean;
  for (const RunResult* result : results) row.peak_bytes = std::max(row.peak_bytes, result->peak_bytes);
}

std::string number_cell(double value, int digits) {
  if (std::isnan(value)) return "-";
  return fmt::format("{:.{}f}", value, digits);
}

// The cell of the loss, which may be NaN by itself.
std::string loss_cell(const ReportRow& row) {
  if (row.finished == 0) return "-";
  if (std::isnan(row.train_loss)) return "nan";
  return std::abs(row.train_loss) < 1e4 ? fmt::format("{:.4f}", row.train_loss)
                                        : fmt::format("{:.3g}", row.train_loss);
}

std::string spread_cell(const ReportRow& row, const Spread& spread, bool named) {
  if (row.finished == 0 || !row.score) return "-";
  const Score& score = *row.score;
  std::string text = named ? score.title() + " " : "";
  text += score.number(spread.mean);
  if (std::isnan(spread.mean) || spread.least == spread.most) return text;
  return text + fmt::format(" ({}..{})", score.number(spread.least), score.number(spread.most));
}

// The cell that warns of runs which diverged, failed or are missing.
std::string trouble_cell(const ReportRow& row) {
  std::string text;
  const auto add = [&](size_t count, std::string_view what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(row.diverged, "diverged");
  add(row.failed, "failed");
  add(row.missing, "missing");
  return text;
}

// The table of one grid.
std::string grid_table(std::span<const ReportRow> rows) {
  const std::optional<Score> score = common_score(rows);
  TextTable table;
  for (const AxisValue& axis : rows.front().axes) table.columns.push_back({axis.key, true});
  table.columns.push_back({"runs"});
  table.columns.push_back({score ? "best " + score->title() : "best"});
  table.columns.push_back({score && score->percent() ? "in fp32 %" : "in fp32"});
  for (const char* name : {"train loss", "low %", "promotions", "skipped", "peak MiB", "seconds"}) {
    table.columns.push_back({name});
  }
  table.columns.push_back({"trouble", true});
  for (const ReportRow& row : rows) {
    std::vector<std::string> cells;
    for (const AxisValue& axis : row.axes) cells.push_back(axis.value);
    cells.push_back(row.finished == row.runs ? std::to_string(row.runs)
                                             : fmt::format("{} of {}", row.finished, row.runs));
    cells.push_back(spread_cell(row, row.best, !score));
    cells.push_back(spread_cell(row, row.best_fp32, !score));
    cells.push_back(loss_cell(row));
    cells.push_back(number_cell(100 * row.low_ratio, 2));
    cells.push_back(number_cell(row.promotions, 1));
    cells.push_back(number_cell(row.skipped, 1));
    cells.push_back(row.finished == 0 ? "-" : number_cell(static_cast<double>(row.peak_bytes) / 0x1p20, 1));
    cells.push_back(number_cell(row.seconds, 1));
    cells.push_back(trouble_cell(row));
    table.rows.push_back(std::move(cells));
  }
  return table.markdown();
}

std::string standing(const SweepOutcome& outcome) {
  const std::string far =
      outcome.result.steps == 0
          ? ""
          : fmt::format(" after {} steps, {} epochs", outcome.result.steps, outcome.result.epochs);
  if (outcome.state == JobState::failed) return fmt::format("failed{}: {}", far, outcome.error);
  return outcome.state == JobState::fresh ? "missing: not begun" : "missing: stopped" + far;
}

std::string legend(const std::optional<Score>& score) {
  const std::string best = score ? fmt::format("best {}: the {} test {} of an epoch", score->name,
                                               score->higher_is_better ? "highest" : "lowest", score->word())
                                 : "best: the best test value of an epoch, by its metric";
  return fmt::format(
      "\nMeans over seeds, with (least..most); figures are of finished runs. {};\n"
      "in fp32: the same weights, computed in fp32. low: elements stored low, mean over epochs. "
      "diverged: a loss was not finite.\n",
      best);
}

std::string exact(const ReportRow& row, double value) {
  if (row.finished == 0) return "";
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

}  // namespace

std::vector<ReportRow> report_rows(std::span<const SweepOutcome> outcomes) {
  std::vector<ReportRow> rows;
  std::vector<std::vector<const RunResult*>> results;
  for (const SweepOutcome& outcome : outcomes) {
    const std::vector<AxisValue> axes = without_seed(outcome.run->axes);
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const ReportRow& row) {
      return row.grid == outcome.run->grid && row.axes == axes;
    });
    const auto at = static_cast<size_t>(same - rows.begin());
    if (same == rows.end()) {
      rows.push_back({outcome.run->grid, axes, outcome.run});
      results.emplace_back();
    }
    ReportRow& row = rows[at];
    ++row.runs;
    if (!row.score) row.score = score_of(outcome);
    row.diverged += outcome.result.diverged ? 1 : 0;
    if (outcome.state == JobState::finished) {
      ++row.finished;
      results[at].push_back(&outcome.result);
    } else {
      ++(outcome.state == JobState::failed ? row.failed : row.missing);
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) fill(rows[i], results[i]);
  return rows;
}

std::string report_markdown(const std::string& title, std::span<const SweepOutcome> outcomes) {
  const std::vector<ReportRow> rows = report_rows(outcomes);
  std::string text = fmt::format("# {}\n", title);
  std::vector<std::string> done;
  for (const ReportRow& row : rows) {
    if (std::find(done.begin(), done.end(), row.grid) != done.end()) continue;
    done.push_back(row.grid);
    std::vector<ReportRow> same;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(same),
                 [&](const ReportRow& other) { return other.grid == row.grid; });
    text += fmt::format("\n## {}\n\n{}", row.grid, grid_table(same));
  }
  std::string stopped;
  for (const SweepOutcome& outcome : outcomes) {
    if (outcome.result.why.empty() || outcome.run->repeats) continue;
    stopped += fmt::format("- `{}` {}\n", outcome.run->folder, outcome.result.why);
  }
  if (!stopped.empty()) text += "\n## Diverged\n\n" + stopped;
  std::string open;
  for (const SweepOutcome& outcome : outcomes) {
    if (outcome.state == JobState::finished || outcome.run->repeats) continue;
    open += fmt::format("- `{}` {}\n", outcome.run->folder, standing(outcome));
  }
  if (!open.empty()) text += "\n## Not finished\n\n" + open;
  return text + legend(common_score(rows));
}

std::string report_csv(std::span<const SweepOutcome> outcomes) {
  const std::vector<ReportRow> rows = report_rows(outcomes);
  std::vector<std::string> keys;
  for (const ReportRow& row : rows) {
    for (const AxisValue& axis : row.axes) {
      if (std::find(keys.begin(), keys.end(), axis.key) == keys.end()) keys.push_back(axis.key);
    }
  }
  TextTable table;
  table.columns.push_back({"grid"});
  for (const std::string& key : keys) table.columns.push_back({key});
  for (const char* name : {"runs", "finished", "failed", "missing", "diverged"}) {
    table.columns.push_back({name});
  }
  const std::optional<Score> score = common_score(rows);
  if (!score) table.columns.push_back({"metric"});
  const std::string best = score ? "best_test_" + score->name : "best_test";
  for (const char* end : {"", "_min", "_max", "_fp32", "_fp32_min", "_fp32_max"}) {
    table.columns.push_back({best + end});
  }
  for (const char* name : {"train_loss", "low_ratio", "promotions", "skipped", "peak_bytes", "seconds"}) {
    table.columns.push_back({name});
  }
  for (const ReportRow& row : rows) {
    std::vector<std::string> cells = {row.grid};
    const RunConfig config = row.run->config();
    for (const std::string& key : keys) cells.push_back(find_config_field(key).get(config));
    for (const size_t count : {row.runs, row.finished, row.failed, row.missing, row.diverged}) {
      cells.push_back(std::to_string(count));
    }
    if (!score) cells.push_back(row.score ? row.score->name : "");
    for (const double value :
         {row.best.mean, row.best.least, row.best.most, row.best_fp32.mean, row.best_fp32.least,
          row.best_fp32.most, row.train_loss, row.low_ratio, row.promotions, row.skipped}) {
      cells.push_back(exact(row, value));
    }
    cells.push_back(row.finished == 0 ? "" : std::to_string(row.peak_bytes));
    cells.push_back(exact(row, row.seconds));
    table.rows.push_back(std::move(cells));
  }
  return table.csv();
}

}  // namespace ulp
