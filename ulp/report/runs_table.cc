#include "ulp/report/runs_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/report/sparkline.h"

namespace ulp {
namespace {

struct OrderName {
  std::string_view name;
  RunOrder order;
};
constexpr OrderName kOrders[] = {
    {"age", RunOrder::age}, {"name", RunOrder::name}, {"metric", RunOrder::metric}, {"peak", RunOrder::peak}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes a whole number off the front, without zeros before it, or else one letter.
std::string_view take_piece(std::string_view& text) {
  size_t size = 1;
  if (is_digit(text.front())) {
    while (text.size() > 1 && text[0] == '0' && is_digit(text[1])) text.remove_prefix(1);
    size = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
  }
  const std::string_view piece = text.substr(0, size);
  text.remove_prefix(size);
  return piece;
}

bool name_before(std::string_view a, std::string_view b) {
  std::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    const std::string_view left = take_piece(x), right = take_piece(y);
    const bool numbers = is_digit(left.front()) && is_digit(right.front());
    if (numbers && left.size() != right.size()) return left.size() < right.size();
    if (left != right) return left < right;
  }
  return std::tuple(x.size(), a) < std::tuple(y.size(), b);
}

bool is_number(const Number& number) { return number && !std::isnan(*number); }

// Whether a comes before b; none of them is last, whatever the direction.
bool number_before(const Number& a, const Number& b, bool descending) {
  if (!is_number(a) || !is_number(b)) return is_number(a) && !is_number(b);
  return descending ? *a > *b : *a < *b;
}

constexpr size_t kGap = 2, kCurve = 16, kLeastCurve = 6, kLeastName = 12;

enum Cell : uint8_t { kRun, kState, kProgress, kBest, kLoss, kLine, kPeak, kAge, kCells };
constexpr std::array<std::string_view, kCells> kTitles = {"run",  "state", "progress", "best",
                                                          "loss", "curve", "peak",     "age"};
constexpr std::array<bool, kCells> kLeft = {true, true, true, false, false, true, false, false};
// What goes first where there is no room.
constexpr Cell kLeastMissed[] = {kLine, kLoss, kPeak, kAge, kProgress, kState, kBest};

std::array<std::string, kCells> cells_of(const RunLine& line, size_t curve, bool ascii) {
  return {line.run,  line.state, line.progress, line.best, line.loss, sparkline(line.curve, curve, ascii),
          line.peak, line.age};
}

struct Layout {
  std::array<size_t, kCells> widths{};
  std::array<bool, kCells> shown{};

  size_t total() const {
    size_t sum = 0;
    for (size_t i = 0; i < kCells; ++i) sum += shown[i] ? widths[i] + (sum > 0 ? kGap : 0) : 0;
    return sum;
  }
};

// Takes from a width what the table has too much, but leaves `least`.
void narrow(Layout& layout, Cell cell, size_t least, size_t columns) {
  size_t& width = layout.widths[cell];
  const size_t excess = layout.total() - std::min(layout.total(), columns);
  if (width > least) width -= std::min(excess, width - least);
}

Layout fit(std::span<const RunLine> lines, size_t columns) {
  Layout layout;
  for (size_t i = 0; i < kCells; ++i) layout.widths[i] = kTitles[i].size();
  for (const RunLine& line : lines) {
    const auto cells = cells_of(line, kCurve, true);
    for (size_t i = 0; i < kCells; ++i) {
      layout.widths[i] = std::max(layout.widths[i], text_columns(cells[i]));
      layout.shown[i] = layout.shown[i] || !cells[i].empty();
    }
  }
  layout.shown[kRun] = true;
  if (columns == 0) return layout;
  narrow(layout, kLine, kLeastCurve, columns);
  // A name that is cut a little is worse than no curve.
  for (const Cell cell : kLeastMissed) {
    Layout least = layout;
    narrow(least, kRun, kLeastName, columns);
    if (least.total() <= columns && (cell != kLine || least.widths[kRun] == layout.widths[kRun])) break;
    layout.shown[cell] = false;
  }
  narrow(layout, kRun, 1, columns);
  return layout;
}

// The end of a name tells runs apart: "..b/size_1-s0".
std::string cut(const std::string& text, size_t columns) {
  const size_t has = text_columns(text);
  if (has <= columns) return text;
  const size_t dots = columns > 2 ? 2 : 0;
  size_t at = 0, left = has;
  while (left > columns - dots) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    --left;
  }
  return std::string(dots, '.') + text.substr(at);
}

std::string joined(const std::array<std::string, kCells>& cells, const Layout& layout) {
  std::string text;
  bool first = true;
  for (size_t i = 0; i < kCells; ++i) {
    if (!layout.shown[i]) continue;
    const std::string cell = cut(cells[i], layout.widths[i]);
    const std::string pad(layout.widths[i] - text_columns(cell), ' ');
    text += std::string(first ? 0 : kGap, ' ') + (kLeft[i] ? cell + pad : pad + cell);
    first = false;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

std::vector<RunRecord> read_figures(std::span<const FoundRun> runs) {
  ReadBudget budget;
  budget.curve = 64;
  budget.heat_columns = 24;
  budget.heat_cells = 24;
  budget.histograms = {0, 0, 1};
  budget.remedies = false;
  const HeldLocks locks;
  std::vector<RunRecord> records;
  for (const FoundRun& run : runs) records.push_back(read_run(run, budget, locks));
  label_groups(records);
  return records;
}

std::string setting_of(const RunRecord& run, std::string_view name) {
  const auto found = std::find_if(run.settings.begin(), run.settings.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == run.settings.end() ? "" : found->second;
}

RunOrder run_order(std::string_view name) {
  std::string names;
  for (const OrderName& order : kOrders) {
    if (order.name == name) return order.order;
    names += (names.empty() ? "" : ", ") + std::string(order.name);
  }
  fail("runs", "--sort is {}; it must be one of {}", name, names);
}

void sort_runs(std::vector<RunRecord>& runs, RunOrder order) {
  const auto by_name = [](const RunRecord& a, const RunRecord& b) { return name_before(a.id, b.id); };
  std::sort(runs.begin(), runs.end(), by_name);
  const auto before = [order](const RunRecord& a, const RunRecord& b) {
    if (order == RunOrder::age) return a.changed > b.changed;
    if (order == RunOrder::peak) return number_before(a.peak_bytes, b.peak_bytes, true);
    if (order == RunOrder::name) return false;
    if (is_number(a.best) != is_number(b.best)) return is_number(a.best);
    if (a.score.name != b.score.name) return a.score.name < b.score.name;
    return number_before(a.best, b.best, a.score.higher_is_better);
  };
  std::stable_sort(runs.begin(), runs.end(), before);
}

RunLength length_of(const RunRecord& run) {
  if (!run.config) return {};
  const RunConfig& config = *run.config;
  if (config.steps > 0) return {0, static_cast<uint64_t>(config.steps)};
  return {static_cast<uint64_t>(std::max<int64_t>(config.epochs, 0)), 0};
}

std::string progress_text(const RunRecord& run) {
  const RunLength length = length_of(run);
  if (length.steps > 0) return fmt::format("step {}/{}", run.steps, length.steps);
  const uint64_t epochs = run.epochs.count() == 0 ? 0 : run.epochs.epoch.back();
  return length.epochs > 0 ? fmt::format("epoch {}/{}", epochs, length.epochs)
                           : fmt::format("step {}", run.steps);
}

std::string age_text(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);  // of a clock that was set back
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 86400) return fmt::format("{}h", seconds / 3600);
  return seconds < 1000 * int64_t{86400} ? fmt::format("{}d", seconds / 86400) : "old";
}

std::string runs_table(std::span<const RunLine> lines, size_t columns, bool ascii) {
  const Layout layout = fit(lines, columns);
  std::array<std::string, kCells> titles;
  std::copy(kTitles.begin(), kTitles.end(), titles.begin());
  std::string text = joined(titles, layout);
  for (const RunLine& line : lines) text += joined(cells_of(line, layout.widths[kLine], ascii), layout);
  return text;
}

}  // namespace ulp
