#include "ulp/data/shuffle.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/support/temp.h"

namespace ulp {
namespace {

using Order = std::vector<uint32_t>;

Order natural(size_t n) {
  Order items(n);
  std::iota(items.begin(), items.end(), 0u);
  return items;
}

Order shuffled(size_t n, uint64_t seed, uint32_t epoch) {
  Order items = natural(n);
  shuffle(items, seed, epoch);
  return items;
}

RC_GTEST_PROP(ShuffleProperty, KeepsEveryItemOnce, ()) {
  const auto items = *rc::gen::arbitrary<Order>();
  Order got = items, sorted = items;
  shuffle(got, *rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<uint32_t>());
  std::sort(got.begin(), got.end());
  std::sort(sorted.begin(), sorted.end());
  RC_ASSERT(got == sorted);
}

TEST(Shuffle, IsAnotherForEachSeedAndEpoch) {
  const Order one = shuffled(1000, 1, 0);
  EXPECT_EQ(one, shuffled(1000, 1, 0));
  EXPECT_NE(one, natural(1000));
  EXPECT_NE(one, shuffled(1000, 1, 1));
  EXPECT_NE(one, shuffled(1000, 2, 0));
  EXPECT_NE(one, shuffled(1000, 1 + (uint64_t{1} << 32), 0));
}

// Pinned: a run that is resumed by another build must see the same order.
TEST(Shuffle, IsPinned) {
  EXPECT_EQ(shuffled(10, 42, 3), (Order{1, 3, 4, 9, 2, 6, 0, 8, 5, 7}));
  EXPECT_EQ(choose_subset(100, 5, 42), (Order{5, 47, 71, 93, 94}));
}

// All 120 orders of five items come equally often: chi-square with 119 degrees of freedom, mean 119, standard
// deviation 15.4.
TEST(Shuffle, GivesEveryOrderEquallyOften) {
  constexpr int kTimes = 120000;
  std::map<Order, int> seen;
  for (int i = 0; i < kTimes; ++i) ++seen[shuffled(5, static_cast<uint64_t>(i / 100), i % 100)];
  ASSERT_EQ(seen.size(), 120u);
  double chi = 0;
  for (const auto& [order, count] : seen) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi, 119 + 5 * 15.4);
  EXPECT_GT(chi, 119 - 5 * 15.4);
}

TEST(Shuffle, LeavesNothingWhereItWas) {
  // In a large shuffle about one item stays in place, and neighbours are torn apart.
  const Order order = shuffled(100000, 9, 0);
  int fixed = 0, neighbours = 0;
  for (uint32_t i = 0; i < order.size(); ++i) {
    fixed += order[i] == i;
    neighbours += i > 0 && order[i] == order[i - 1] + 1;
  }
  EXPECT_LE(fixed, 8);
  EXPECT_LE(neighbours, 8);
}

TEST(Subset, IsSortedDistinctAndNested) {
  const Order large = choose_subset(1000, 300, 7), small = choose_subset(1000, 100, 7);
  EXPECT_EQ(large.size(), 300u);
  EXPECT_TRUE(std::is_sorted(large.begin(), large.end()));
  EXPECT_EQ(std::adjacent_find(large.begin(), large.end()), large.end());
  EXPECT_LT(large.back(), 1000u);
  EXPECT_TRUE(std::includes(large.begin(), large.end(), small.begin(), small.end()));
  EXPECT_NE(small, choose_subset(1000, 100, 8));
  EXPECT_EQ(choose_subset(50, 50, 3), natural(50));
  EXPECT_EQ(choose_subset(50, 0, 3), Order{});
}

TEST(Subset, ChoosesEveryExampleEquallyOften) {
  constexpr int kTimes = 20000;
  std::vector<int> seen(10);
  for (int i = 0; i < kTimes; ++i) {
    for (const uint32_t chosen : choose_subset(10, 3, static_cast<uint64_t>(i))) ++seen[chosen];
  }
  for (const int count : seen) EXPECT_NEAR(count, 0.3 * kTimes, 5 * std::sqrt(kTimes * 0.3 * 0.7));
}

TEST(Subset, RefusesMoreThanThereAre) {
  EXPECT_EQ(complaint_of([] { choose_subset(3, 4, 0); }), "[shuffle] cannot choose 4 of 3 examples");
}

}  // namespace
}  // namespace ulp
