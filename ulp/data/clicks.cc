#include "ulp/data/clicks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/data/dataset.h"
#include "ulp/data/readers.h"
#include "ulp/data/tab_lines.h"

namespace ulp {
namespace {

constexpr std::string_view kName = "criteo", kFile = "train.txt";
constexpr size_t kColumns = 1 + kClickCounts + kClickTables, kDays = 7, kIdDigits = 8;
constexpr size_t kMostRows = std::numeric_limits<uint32_t>::max();
constexpr int32_t kMostIds = 1 << 24;
// Beyond what eight digits can say.
constexpr uint64_t kMissing = uint64_t{1} << 32;

uint64_t mixed(uint64_t word) {
  word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9u;
  word = (word ^ word >> 27) * 0x94D049BB133111EBu;
  return word ^ word >> 31;
}

// The ids of one kind, numbered in the order of their first appearance.
class Ids {
 public:
  uint32_t number_of(uint64_t id) {
    const auto [found, is_new] = numbers_.try_emplace(id, static_cast<uint32_t>(all_.size()));
    if (is_new) all_.push_back(id);
    return found->second;
  }
  // The row of a table that has rows for the first `rows` ids alone.
  uint32_t row_of(uint32_t number, uint32_t rows) const {
    return number < rows ? number : static_cast<uint32_t>(mixed(all_[number] + 1) % rows);
  }

 private:
  std::unordered_map<uint64_t, uint32_t> numbers_;
  std::vector<uint64_t> all_;
};

// 157 bytes a row.
class ClickFile : public ClickSet {
 public:
  ClickFile(std::string_view name, const std::string& path) {
    name_ = name;
    digest_ = TabLines::kNoDigest;
    std::array<Ids, kClickTables> ids;
    TabLines lines(path, "a row for each advertisement", digest_);
    while (lines.next()) add(lines, ids);
    clicked_.shrink_to_fit();
    counts_.shrink_to_fit();
    row_.shrink_to_fit();
    const size_t all = clicked_.size();
    if (all < kDays)
      fail("data", "{} has {} rows: the last seventh is tested, so it needs {}", path, all, kDays);
    test_ = all / kDays;
    train_ = all - test_;
    for (size_t table = 0; table < kClickTables; ++table) number_rows(table, ids[table]);
    const auto test = clicked_.begin() + static_cast<ptrdiff_t>(train_);
    if (std::count(test, clicked_.end(), 1) % static_cast<ptrdiff_t>(test_) == 0) {
      fail("data", "{}: the {} test rows, from line {} on, are all {}: some must be clicked and some not",
           path, test_, train_ + 1, *test);
    }
  }

  void read(Part part, std::span<const uint32_t> numbers, ClickRows& rows) const override {
    const size_t count = numbers.size(), before = part == Part::train ? 0 : train_;
    rows.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const size_t from = before + numbers[i];
      rows.clicked[i] = clicked_[from];
      std::copy_n(counts_.begin() + static_cast<ptrdiff_t>(from * kClickCounts), kClickCounts,
                  rows.counts.begin() + static_cast<ptrdiff_t>(i * kClickCounts));
      for (size_t table = 0; table < kClickTables; ++table)
        rows.table_row[table * count + i] = static_cast<int32_t>(row_[from * kClickTables + table]);
    }
  }
  std::vector<float> best_scores(Part) const override { return {}; }

 private:
  void add(const TabLines& lines, std::array<Ids, kClickTables>& ids) {
    const auto fields = lines.fields();
    if (fields.size() != kColumns) {
      lines.refuse("a row has {} columns with tabs between (0 or 1, {} numbers, {} ids), this has {}",
                   kColumns, kClickCounts, kClickTables, fields.size());
    }
    if (fields[0] != "0" && fields[0] != "1")
      lines.refuse("the first column must be 1, clicked, or 0, got '{}'", shown_text(fields[0]));
    if (clicked_.size() == kMostRows) lines.refuse("there may be {} rows at most", kMostRows);
    clicked_.push_back(fields[0] == "1" ? 1 : 0);
    for (size_t i = 0; i < kClickCounts; ++i) counts_.push_back(count_in(lines, 1 + i));
    for (size_t table = 0; table < kClickTables; ++table)
      row_.push_back(ids[table].number_of(id_in(lines, 1 + kClickCounts + table)));
  }

  // Some of Criteo's numbers are negative.
  static int32_t count_in(const TabLines& lines, size_t column) {
    const std::string_view text = lines.fields()[column];
    if (text.empty()) return 0;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      lines.refuse("column {} must be a whole number or empty, got '{}'", column + 1, shown_text(text));
    return static_cast<int32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max()));
  }

  static uint64_t id_in(const TabLines& lines, size_t column) {
    const std::string_view text = lines.fields()[column];
    if (text.empty()) return kMissing;
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id, 16);
    if (error != std::errc() || end != text.data() + text.size() || text.size() > kIdDigits) {
      lines.refuse("column {} must be an id of up to {} hexadecimal digits or empty, got '{}'", column + 1,
                   kIdDigits, shown_text(text));
    }
    return id;
  }

  // Training rows have numbered their ids first.
  void number_rows(size_t table, const Ids& ids) {
    uint32_t rows = 0;
    for (size_t i = 0; i < train_; ++i) rows = std::max(rows, row_[i * kClickTables + table] + 1);
    rows = std::min(rows, static_cast<uint32_t>(kMostIds));
    tables_[table] = static_cast<int32_t>(rows);
    for (size_t i = 0; i < clicked_.size(); ++i) {
      uint32_t& row = row_[i * kClickTables + table];
      row = ids.row_of(row, rows);
    }
  }

  std::vector<uint8_t> clicked_;
  std::vector<int32_t> counts_;  // (rows, kClickCounts)
  std::vector<uint32_t> row_;    // (rows, kClickTables)
};

bool is_path(std::string_view name) { return name.find_first_of("./") != name.npos; }

std::string find_file(std::string_view name, const std::string& data_dir) {
  if (is_path(name)) {
    if (!data_dir.empty()) fail("data", "{} is a file: leave out --data-dir", name);
    return std::string(name);
  }
  std::vector<std::string> places;
  if (const std::string& root = data_dir.empty() ? data_root() : data_dir; !root.empty()) {
    for (const std::string& folder : {fmt::format("{}/{}", root, kName), fmt::format("{}/dac", root), root})
      places.push_back(fmt::format("{}/{}", folder, kFile));
  }
  for (const std::string& place : places) {
    for (const std::string_view packed : {"", ".gz"}) {
      const std::string path = fmt::format("{}{}", place, packed);
      if (is_there("data", path)) return path;
    }
  }
  fail("data",
       "there is no data set {}: {}{}; it is {} of Criteo's display advertising challenge, or say --data "
       "FILE or "
       "--data synthetic-clicks",
       name, places.empty() ? "set ULP_DATA, or say --data-dir DIR" : "looked for ", fmt::join(places, ", "),
       kFile);
}

}  // namespace

void ClickRows::resize(size_t rows) {
  clicked.resize(rows);
  counts.resize(rows * kClickCounts);
  table_row.resize(rows * kClickTables);
}

bool names_clicks(std::string_view name) { return name == kName || names_made_clicks(name) || is_path(name); }

std::shared_ptr<const ClickSet> load_clicks(std::string_view name, const std::string& data_dir) {
  if (names_made_clicks(name)) {
    if (!data_dir.empty()) fail("data", "{} is made up: leave out --data-dir", name);
    return made_clicks(name);
  }
  if (!names_clicks(name)) {
    fail("data", "'{}' names no clicks: known are {}, synthetic-clicks and files in {}'s layout", name, kName,
         kName);
  }
  return std::make_shared<const ClickFile>(name, find_file(name, data_dir));
}

}  // namespace ulp
