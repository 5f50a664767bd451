// Ratings through files written here, whole and damaged, and items that were not met.
#include "ulp/data/ratings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "tests/support/temp.h"

namespace ulp {
namespace {

constexpr int32_t kUsers = 3, kItems = 14;

// "(user,item)" and the ten items from `from` on that are not `item`.
std::string negatives(int32_t user, int32_t item, int32_t from) {
  std::string line = fmt::format("({},{})", user, item);
  for (int32_t i = from, count = 0; count < 10; ++i) {
    if (i == item) continue;
    line += fmt::format("\t{}", i);
    ++count;
  }
  return line + "\n";
}

class Ratings : public ::testing::Test {
 protected:
  Ratings() {
    put(folder_ / "few.train.rating", train_);
    put(folder_ / "few.test.rating", test_);
    put(folder_ / "few.test.negative", negative_);
  }
  RatingSet load() const { return load_ratings("few", folder_.path()); }
  std::string complaint() const {
    return complaint_of([&] { load(); }, folder_.path());
  }
  // What is said when a file has this text.
  std::string with(const std::string& kind, const std::string& text) {
    put(folder_ / ("few." + kind), text);
    return complaint();
  }

  TempFolder folder_;
  const std::string train_ = "2\t5\t3\t100\n0\t1\t4\t101\n0\t0\t1\t102\r\n2\t13\t5\t103\n2\t4\t5\t104\n";
  const std::string test_ = "0\t2\t5\t200\n2\t0\t1\t201\n";
  const std::string negative_ = negatives(0, 2, 3) + negatives(2, 0, 1);
};

TEST_F(Ratings, AreReadWhole) {
  const RatingSet set = load();
  EXPECT_EQ(set.users, kUsers);
  EXPECT_EQ(set.items, kItems);
  EXPECT_EQ(set.first, (std::vector<uint32_t>{0, 2, 2, 5}));
  EXPECT_EQ(set.met, (std::vector<int32_t>{0, 1, 4, 5, 13}));
  EXPECT_EQ(set.user_of, (std::vector<int32_t>{0, 0, 2, 2, 2}));
  EXPECT_EQ(set.test_users, (std::vector<int32_t>{0, 2}));
  ASSERT_EQ(set.candidates, 11u);
  EXPECT_EQ(set.test_items, (std::vector<int32_t>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,  //
                                                  0, 1, 2, 3, 4, 5, 6, 7, 8,  9,  10}));
  const uint32_t digest = set.digest;
  // The order of lines is not what a set is; its bytes are what a run is resumed with.
  put(folder_ / "few.train.rating", "2\t4\t5\t104\n0\t1\t4\t101\n0\t0\t1\t102\n2\t13\t5\t103\n2\t5\t3\t100");
  const RatingSet other = load();
  EXPECT_EQ(other.met, set.met);
  EXPECT_NE(other.digest, digest);
}

TEST_F(Ratings, ByPrefix) {
  EXPECT_EQ(load_ratings(folder_ / "few", "").items, kItems);
  EXPECT_TRUE(names_ratings("ml-1m"));
  EXPECT_TRUE(names_ratings("a/few"));
  EXPECT_FALSE(names_ratings("cifar10"));
  EXPECT_SAYS(load_ratings(folder_ / "none", ""), "none.train.rating");
  EXPECT_SAYS(load_ratings("none", folder_.path()), "looked for");
  EXPECT_SAYS(load_ratings(folder_ / "few", folder_.path()), "leave out --data-dir");
  // In a folder of its name, too.
  std::filesystem::create_directory(folder_ / "few");
  for (const std::string kind : {"train.rating", "test.rating", "test.negative"})
    std::filesystem::rename(folder_ / ("few." + kind), folder_ / ("few/few." + kind));
  EXPECT_EQ(load().items, kItems);
}

TEST_F(Ratings, DamagedFilesAreNamedByLine) {
  EXPECT_EQ(with("train.rating", "0\t1\t4\t101\n0\t1\t4\n"),
            "[data] F/few.train.rating, line 2: a rating has 4 columns with tabs between (user, item, "
            "rating, time), this has 3");
  EXPECT_NE(with("train.rating", "0\t1\t4\t101\n\n").find("line 2: a rating has 4 columns"),
            std::string::npos);
  EXPECT_NE(with("train.rating", "0 1 4 101\n").find("this has 1"), std::string::npos);
  for (const std::string id : {"-1", "x", "1.5", "", "16777216", "99999999999", " 1"}) {
    EXPECT_NE(with("train.rating", "0\t" + id + "\t4\t101\n")
                  .find("line 1: the item must be a whole number from 0 to 16777215, got '" + id + "'"),
              std::string::npos)
        << id;
  }
  EXPECT_EQ(with("train.rating", ""), "[data] F/few.train.rating is empty: it needs a line for each rating");
  with("train.rating", train_);
  const std::string second = negatives(2, 0, 1);
  EXPECT_EQ(with("test.negative", negatives(0, 2, 5) + second),
            "[data] F/few.test.negative, line 1: there is no item 14: the ratings have items 0 to 13");
  EXPECT_NE(with("test.negative", negatives(0, 3, 4) + second).find("line 1: it must begin with (0,2)"),
            std::string::npos);
  EXPECT_NE(with("test.negative", negatives(0, 2, 3)).find("has 1 lines for 2 test ratings"),
            std::string::npos);
  EXPECT_NE(with("test.negative", negative_ + second).find("line 3: there are 2 test ratings"),
            std::string::npos);
  EXPECT_NE(with("test.negative", negatives(0, 2, 3) + "(2,0)\t1\t2\n").find("line 2: line 1 has 10 items"),
            std::string::npos);
  EXPECT_NE(with("test.negative", "(0,2)\t1\t2\n" + second).find("line 1: 10 or more items are needed"),
            std::string::npos);
}

TEST_F(Ratings, AUserWhoHasMetEverything) {
  std::string all = train_;
  for (int32_t item = 0; item < kItems; ++item) all += fmt::format("1\t{}\t1\t1\n", item);
  EXPECT_NE(with("train.rating", all).find("user 1 of few has met all 14 items"), std::string::npos);
  // Twice the same is one item met.
  EXPECT_EQ(with("train.rating", train_ + "1\t3\t1\t1\n1\t3\t1\t2\n"), "");
}

TEST_F(Ratings, DrawnItemsWereNotMetAndAreEquallyLikely) {
  const RatingSet set = load();
  constexpr int kDraws = 110000;
  std::map<int32_t, int> counts;
  for (uint64_t i = 0; i < kDraws; ++i) ++counts[draw_unmet(set, 2, 7, 3, i)];
  EXPECT_EQ(counts.size(), 11u);
  // Each of 11 items 10,000 times; a deviation is 95.
  for (const auto& [item, count] : counts) {
    EXPECT_FALSE(set.has_met(2, item)) << item;
    EXPECT_NEAR(count, kDraws / 11, 5 * 95) << item;
  }
  // A function of seed, epoch and index, each of which matters.
  const auto some = [&](uint64_t seed, uint32_t epoch, uint64_t from) {
    std::vector<int32_t> items;
    for (uint64_t i = 0; i < 40; ++i) items.push_back(draw_unmet(set, 0, seed, epoch, from + i));
    return items;
  };
  EXPECT_EQ(some(7, 3, 0), some(7, 3, 0));
  const std::set<std::vector<int32_t>> all{some(7, 3, 0), some(8, 3, 0), some(7, 4, 0), some(7, 3, 40)};
  EXPECT_EQ(all.size(), 4u);
}

}  // namespace
}  // namespace ulp
