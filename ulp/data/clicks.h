// Advertisements that were shown, and whether they were clicked: rows of 13 counts and 26 ids, with
// the answer. They come from a file in Criteo's layout, or are made up.
//
// A row of a file has 40 columns with tabs between: 0 or 1, 13 whole numbers, 26 ids of up to eight
// hexadecimal digits. Numbers and ids may be missing; a missing number is 0, a missing id an id of
// its own. Rows stand in the order of time: the last seventh is the test set, as the last day of
// Criteo's week is for DLRM. Files may be gzip. A row that is not as it should be throws an Error
// with the file and the line.
//
// Every kind of id has a table of embeddings. An id has the row of its first appearance among the
// training rows. One that does not appear there has a row that a hash chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/data/loader.h"

namespace ulp {

inline constexpr size_t kClickCounts = 13, kClickTables = 26;

// Rows of a set, by column: what one table's embedding reads is one array.
struct ClickRows {
  std::vector<float> clicked;      // (n), 0 or 1
  std::vector<int32_t> counts;     // (n, kClickCounts), from 0
  std::vector<int32_t> table_row;  // (kClickTables, n)
  void resize(size_t rows);
  size_t size() const { return clicked.size(); }
};

class ClickSet {
 public:
  virtual ~ClickSet() = default;

  const std::string& name() const { return name_; }
  // The size of each table of embeddings.
  const std::array<int32_t, kClickTables>& tables() const { return tables_; }
  // Of the file, or of what the rows are made from.
  uint32_t digest() const { return digest_; }
  size_t examples(Part part) const { return part == Part::train ? train_ : test_; }

  // Rows by their numbers in a part.
  virtual void read(Part part, std::span<const uint32_t> numbers, ClickRows& rows) const = 0;
  // Of made-up rows: what the chance of a click rises with, for every row of the part. No network can
  // rank them better. Empty where it is not known.
  virtual std::vector<float> best_scores(Part part) const = 0;

 protected:
  std::string name_;
  std::array<int32_t, kClickTables> tables_{};
  uint32_t digest_ = 0;
  size_t train_ = 0, test_ = 0;
};

// The set of this name: a made-up one (made_clicks), a file with a folder or a dot in its name, or
// `criteo`, which is train.txt in `data_dir` or, without one, in the data root, and there in the
// folders `criteo` and `dac` too.
std::shared_ptr<const ClickSet> load_clicks(std::string_view name, const std::string& data_dir);

// Whether load_clicks might know it.
bool names_clicks(std::string_view name);

// `synthetic-clicks`, `synthetic-clicks:ROWS`, `synthetic-clicks:ROWS:IDS` or
// `synthetic-clicks:ROWS:IDS:SEED`: so many training rows (1,000,000), a tenth as many test rows but
// at most 500,000, and so many ids of each kind (10,000). A row is a pure function of the seed (0)
// and its number, so nothing is stored. How often an id occurs follows Zipf's law. Clicks are drawn
// from chances that are no network's: an effect of each id, effects of pairs of ids, and bends and
// products of the counts.
std::shared_ptr<const ClickSet> made_clicks(std::string_view name);
bool names_made_clicks(std::string_view name);

}  // namespace ulp
