// Clicks through files written here, whole and damaged, and made-up ones.
#include "ulp/data/clicks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tests/support/temp.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace {

ClickRows rows_of(const ClickSet& set, Part part) {
  std::vector<uint32_t> numbers(set.examples(part));
  std::iota(numbers.begin(), numbers.end(), 0u);
  ClickRows rows;
  set.read(part, numbers, rows);
  return rows;
}

// A table's rows by example.
std::vector<int32_t> column(const ClickRows& rows, size_t table) {
  const auto from = rows.table_row.begin() + static_cast<ptrdiff_t>(table * rows.size());
  return {from, from + static_cast<ptrdiff_t>(rows.size())};
}

class Clicks : public ::testing::Test {
 protected:
  using Fields = std::vector<std::string>;

  // A row whose fields are a number and ids that all rows share, unless said.
  static Fields row(std::string_view clicked) {
    Fields fields = {std::string(clicked)};
    for (size_t i = 0; i < kClickCounts; ++i) fields.push_back(fmt::format("{}", i));
    for (size_t i = 0; i < kClickTables; ++i) fields.push_back(fmt::format("{:08x}", 0xA0 + i));
    return fields;
  }
  static Fields with(Fields fields, size_t column, std::string_view text) {
    fields[column] = text;
    return fields;
  }
  // Fourteen rows, of which the last two are tested.
  static std::vector<Fields> sound() {
    std::vector<Fields> rows;
    for (size_t i = 0; i < 14; ++i) rows.push_back(row(i % 2 == 0 ? "0" : "1"));
    return rows;
  }
  std::string put_rows(const std::vector<Fields>& rows, std::string_view end = "\n") const {
    std::string text;
    for (const Fields& fields : rows) text += fmt::format("{}{}", fmt::join(fields, "\t"), end);
    put(folder_ / "some.tsv", text);
    return folder_ / "some.tsv";
  }
  std::shared_ptr<const ClickSet> load(const std::vector<Fields>& rows) const {
    return load_clicks(put_rows(rows), "");
  }
  std::string complaint(const std::vector<Fields>& rows) const {
    return complaint_of([&] { load(rows); }, folder_.path());
  }
  // What is said of the third row when one of its fields is this.
  std::string complaint(size_t column, std::string_view text) const {
    std::vector<Fields> rows = sound();
    rows[2][column] = text;
    return complaint(rows);
  }

  TempFolder folder_;
};

TEST_F(Clicks, AreReadWhole) {
  std::vector<Fields> rows = sound();
  constexpr size_t kFirstId = 1 + kClickCounts;
  rows[1] = with(with(with(rows[1], 1, "-3"), 2, ""), 3, "99999999999");
  rows[1][kFirstId] = "B";
  rows[4][kFirstId] = "";
  rows[5][kFirstId] = "0000000b";  // the same as in the second row
  rows[6][kFirstId] = "00000000";  // not the same as none
  rows[12][kFirstId] = "";
  rows[13][kFirstId] = "ffffffff";  // in a test row alone
  const auto set = load(rows);
  EXPECT_EQ(set->examples(Part::train), 12u);
  EXPECT_EQ(set->examples(Part::test), 2u);
  EXPECT_EQ(set->tables()[0], 4);
  EXPECT_EQ(set->tables()[1], 1);
  EXPECT_TRUE(set->best_scores(Part::test).empty());
  const ClickRows train = rows_of(*set, Part::train), test = rows_of(*set, Part::test);
  EXPECT_EQ(train.clicked, (std::vector<float>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(column(train, 0), (std::vector<int32_t>{0, 1, 0, 0, 2, 1, 3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(column(train, 25), (std::vector<int32_t>(12, 0)));
  const std::vector<int32_t> second(train.counts.begin() + kClickCounts,
                                    train.counts.begin() + 2 * kClickCounts);
  EXPECT_EQ(second, (std::vector<int32_t>{0, 0, 2147483647, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(column(test, 0)[0], 2);
  EXPECT_LT(static_cast<uint32_t>(column(test, 0)[1]), 4u);
  // In any order, and any of them.
  ClickRows some;
  const std::vector<uint32_t> numbers = {6, 1};
  set->read(Part::train, numbers, some);
  EXPECT_EQ(some.clicked, (std::vector<float>{0, 1}));
  EXPECT_EQ(column(some, 0), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(some.counts[kClickCounts + 2], 2147483647);
  // Windows' ends of lines and a last line without one change the bytes alone.
  const uint32_t digest = set->digest();
  const auto other = load_clicks(put_rows(rows, "\r\n"), "");
  EXPECT_EQ(rows_of(*other, Part::train).table_row, train.table_row);
  EXPECT_NE(other->digest(), digest);
}

// Ids that no training row has get rows by themselves, spread over the table.
TEST_F(Clicks, UnseenIdsAreHashed) {
  std::vector<Fields> rows;
  constexpr size_t kTrain = 600, kTest = 100, kTable = 1 + kClickCounts + 3;
  for (size_t i = 0; i < kTrain; ++i)
    rows.push_back(with(row(i % 2 == 0 ? "0" : "1"), kTable, fmt::format("{:x}", i % 50)));
  for (size_t i = 0; i < kTest; ++i)
    rows.push_back(with(row(i % 3 == 0 ? "0" : "1"), kTable, fmt::format("{:x}", 1000 + i / 2)));
  const auto set = load(rows);
  ASSERT_EQ(set->examples(Part::test), kTest);
  ASSERT_EQ(set->tables()[3], 50);
  const std::vector<int32_t> hashed = column(rows_of(*set, Part::test), 3);
  for (size_t i = 0; i < kTest; i += 2) EXPECT_EQ(hashed[i], hashed[i + 1]);
  const std::set<int32_t> different(hashed.begin(), hashed.end());
  // Fifty throws at fifty rows hit 32 on average, with a deviation of 2.3.
  EXPECT_NEAR(static_cast<double>(different.size()), 32, 10);
  for (const int32_t one : different) EXPECT_TRUE(one >= 0 && one < 50) << one;
}

TEST_F(Clicks, DamagedFilesAreNamedByLine) {
  EXPECT_EQ(complaint(sound()), "");
  std::vector<Fields> rows = sound();
  rows[3].pop_back();
  rows[3].pop_back();
  EXPECT_EQ(complaint(rows),
            "[data] F/some.tsv, line 4: a row has 40 columns with tabs between (0 or 1, 13 numbers, 26 ids), "
            "this has 38");
  rows[3] = {""};
  EXPECT_NE(complaint(rows).find("line 4: a row has 40 columns"), std::string::npos);
  rows = sound();
  rows[0].push_back("");
  EXPECT_NE(complaint(rows).find("line 1: a row has 40 columns"), std::string::npos);
  for (const std::string label : {"2", "", "01", "-1", "x"}) {
    EXPECT_EQ(complaint(0, label),
              "[data] F/some.tsv, line 3: the first column must be 1, clicked, or 0, got '" + label + "'");
  }
  for (const std::string number : {"1.5", "x", " 1", "1 ", "99999999999999999999", "0x1"}) {
    EXPECT_EQ(complaint(5, number),
              "[data] F/some.tsv, line 3: column 6 must be a whole number or empty, got '" + number + "'");
  }
  for (const std::string id : {"g", "123456789", "-1", "0x1", " a", "a1 "}) {
    EXPECT_EQ(
        complaint(39, id),
        "[data] F/some.tsv, line 3: column 40 must be an id of up to 8 hexadecimal digits or empty, got '" +
            id + "'");
  }
  EXPECT_EQ(complaint(std::vector<Fields>{}),
            "[data] F/some.tsv is empty: it needs a row for each advertisement");
  rows = sound();
  rows.resize(6);
  EXPECT_EQ(complaint(rows), "[data] F/some.tsv has 6 rows: the last seventh is tested, so it needs 7");
  rows = sound();
  rows[12][0] = rows[13][0] = "1";
  EXPECT_EQ(
      complaint(rows),
      "[data] F/some.tsv: the 2 test rows, from line 13 on, are all 1: some must be clicked and some not");
  put(folder_ / "long", std::string(size_t{18} << 20, 'a'));
  EXPECT_EQ(complaint_of([&] { load_clicks(folder_ / "long", ""); }, folder_.path()),
            "[data] F/long, line 1: it is longer than 16 MiB: this is no text with tabs between columns");
}

TEST_F(Clicks, ByName) {
  const std::string file = put_rows(sound());
  EXPECT_SAYS(load_clicks(file, folder_.path()), "leave out --data-dir");
  EXPECT_SAYS(load_clicks(folder_ / "none.tsv", ""), "none.tsv");
  EXPECT_SAYS(load_clicks("criteo", folder_.path()), "looked for");
  EXPECT_SAYS(load_clicks("criteo", folder_.path()), "criteo/train.txt");
  EXPECT_SAYS(load_clicks("cifar10", ""), "'cifar10' names no clicks: known are criteo, synthetic-clicks");
  std::filesystem::create_directory(folder_ / "criteo");
  std::filesystem::copy(file, folder_ / "criteo/train.txt");
  EXPECT_EQ(load_clicks("criteo", folder_.path())->examples(Part::train), 12u);
  for (const std::string_view name : {"criteo", "synthetic-clicks", "synthetic-clicks:10", "a.txt", "a/b"})
    EXPECT_TRUE(names_clicks(name)) << name;
  for (const std::string_view name : {"cifar10", "synthetic", "synthetic-clicksx", ""})
    EXPECT_FALSE(names_clicks(name)) << name;
}

TEST(MadeClicks, Names) {
  const auto usual = load_clicks("synthetic-clicks", "");
  EXPECT_EQ(usual->examples(Part::train), 1'000'000u);
  EXPECT_EQ(usual->examples(Part::test), 100'000u);
  EXPECT_EQ(usual->tables()[25], 10'000);
  EXPECT_EQ(load_clicks("synthetic-clicks:10000000", "")->examples(Part::test), 500'000u);
  EXPECT_EQ(load_clicks("synthetic-clicks:500:7", "")->tables()[0], 7);
  EXPECT_SAYS(load_clicks("synthetic-clicks", "folder"), "leave out --data-dir");
  for (const std::string rest : {"", "x", "9", "-5", "10:", "10:0", "10:1:-1", "10:1:1:1", "1e6", ":",
                                 "10::1", "99999999999999", "10:99999999"}) {
    SCOPED_TRACE(rest);
    EXPECT_SAYS(load_clicks("synthetic-clicks:" + rest, ""), "is no set of made-up clicks");
  }
}

TEST(MadeClicks, ArePureFunctionsOfSeedAndNumber) {
  const auto set = made_clicks("synthetic-clicks:1000:100"), same = made_clicks("synthetic-clicks:1000:100");
  const ClickRows all = rows_of(*set, Part::train);
  EXPECT_EQ(rows_of(*same, Part::train).table_row, all.table_row);
  // More rows begin with the same ones.
  const auto more = made_clicks("synthetic-clicks:5000:100");
  ClickRows some;
  const std::vector<uint32_t> numbers = {999, 17};
  more->read(Part::train, numbers, some);
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(some.clicked[i], all.clicked[numbers[i]]);
    for (size_t k = 0; k < kClickCounts; ++k)
      EXPECT_EQ(some.counts[i * kClickCounts + k], all.counts[numbers[i] * kClickCounts + k]);
    for (size_t k = 0; k < kClickTables; ++k) EXPECT_EQ(column(some, k)[i], column(all, k)[numbers[i]]);
  }
  const int threads = thread_count();
  set_thread_count(1);
  const std::vector<float> scores = set->best_scores(Part::train);
  set_thread_count(3);
  EXPECT_EQ(set->best_scores(Part::train), scores);
  set_thread_count(threads);
  // Everything in the name is another set, and test rows are no training rows.
  std::set<uint32_t> digests;
  for (const std::string_view name : {"synthetic-clicks:1000:100", "synthetic-clicks:1001:100",
                                      "synthetic-clicks:1000:101", "synthetic-clicks:1000:100:1"})
    digests.insert(made_clicks(name)->digest());
  EXPECT_EQ(digests.size(), 4u);
  const ClickRows other = rows_of(*made_clicks("synthetic-clicks:1000:100:1"), Part::train);
  EXPECT_NE(other.table_row, all.table_row);
  EXPECT_NE(rows_of(*set, Part::test).counts,
            std::vector<int32_t>(all.counts.begin(), all.counts.begin() + 100 * kClickCounts));
}

TEST(MadeClicks, IdsFollowZipfsLaw) {
  constexpr size_t kRows = 20000, kIds = 50;
  const ClickRows rows =
      rows_of(*made_clicks(fmt::format("synthetic-clicks:{}:{}", kRows, kIds)), Part::train);
  double sum = 0;
  for (size_t rank = 0; rank < kIds; ++rank) sum += 1.0 / static_cast<double>(rank + 1);
  for (const size_t table : {size_t{0}, kClickTables - 1}) {
    std::vector<double> seen(kIds);
    for (const int32_t id : column(rows, table)) ++seen.at(static_cast<size_t>(id));
    for (size_t rank = 0; rank < kIds; ++rank) {
      const double wanted = kRows / sum / static_cast<double>(rank + 1);
      EXPECT_NEAR(seen[rank], wanted, 5 * std::sqrt(wanted)) << rank;
    }
  }
}

// Clicks are drawn with the chance that a score stands for: of rows with scores in one range a share
// is clicked that the chances have on average.
TEST(MadeClicks, ChancesAreKept) {
  constexpr size_t kRows = 40000;
  const auto set = made_clicks(fmt::format("synthetic-clicks:{}:1000", kRows));
  const std::vector<float> scores = set->best_scores(Part::train);
  const ClickRows rows = rows_of(*set, Part::train);
  std::map<int, std::array<double, 3>> bins;  // chances, clicks, rows
  for (size_t i = 0; i < kRows; ++i) {
    const double z = scores[i], chance = 0.5 + 0.5 * z / std::sqrt(1 + z * z);
    auto& [chances, clicks, count] = bins[static_cast<int>(chance * 8)];
    chances += chance;
    clicks += rows.clicked[i];
    ++count;
  }
  size_t large = 0;
  for (const auto& [bin, of] : bins) {
    const auto& [chances, clicks, count] = of;
    const double chance = chances / count;
    EXPECT_NEAR(clicks / count, chance, 5 * std::sqrt(chance * (1 - chance) / count) + 1e-9) << bin;
    large += count > 500 ? 1 : 0;
  }
  EXPECT_GE(large, 5u);  // scores tell rows apart
}

}  // namespace
}  // namespace ulp
