// Clicks: a byte below 16 asks for made-up ones by the name that follows; anything else begins a file.
#include "ulp/data/clicks.h"

#include <algorithm>
#include <numeric>

#include "fuzz/fuzz.h"

namespace ulp::fuzz {
namespace {

void check(const ClickSet& set, Part part) {
  std::vector<uint32_t> numbers(std::min<size_t>(set.examples(part), 100));
  std::iota(numbers.begin(), numbers.end(), static_cast<uint32_t>(set.examples(part) - numbers.size()));
  ClickRows rows;
  set.read(part, numbers, rows);
  expect(rows.size() == numbers.size() && !numbers.empty(), "other rows than were asked for");
  for (const float clicked : rows.clicked)
    expect(clicked == 0 || clicked == 1, "a click that is neither 0 nor 1");
  for (const int32_t count : rows.counts) expect(count >= 0, "a count below 0");
  for (size_t table = 0; table < kClickTables; ++table) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t row = rows.table_row[table * rows.size() + i];
      expect(row >= 0 && row < set.tables()[table], "a row outside of its table");
    }
  }
}

}  // namespace

void try_input(std::string_view input) {
  std::string name = "clicks.tsv";
  if (!input.empty() && static_cast<uint8_t>(input[0]) < 16) {
    name = "synthetic-clicks:" + std::string(input.substr(1));
  } else {
    name = file(name, input);
  }
  const auto set = load_clicks(name, "");
  check(*set, Part::train);
  check(*set, Part::test);
}

}  // namespace ulp::fuzz
