#include "ulp/plan/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace ulp {
namespace {

bool overlap(const Buffer& a, const Buffer& b) {
  const bool together = a.first <= b.last && b.first <= a.last;
  return together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

RC_GTEST_PROP(Layout, BuffersThatLiveTogetherLieApart, ()) {
  std::vector<Buffer> buffers;
  const int count = *rc::gen::inRange(0, 40);
  for (int i = 0; i < count; ++i) {
    const int first = *rc::gen::inRange(0, 20), length = *rc::gen::inRange(0, 8);
    buffers.push_back({static_cast<size_t>(*rc::gen::inRange(0, 100)), first, first + length});
  }
  const size_t arena = lay_out(buffers);
  size_t sum = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    sum += buffers[i].bytes;
    RC_ASSERT(buffers[i].offset + buffers[i].bytes <= arena);
    for (size_t j = 0; j < i; ++j) RC_ASSERT(!overlap(buffers[i], buffers[j]));
  }
  RC_ASSERT(arena >= most_alive(buffers));
  RC_ASSERT(arena <= sum);
}

TEST(Layout, ReusesWhatIsFree) {
  std::vector<Buffer> buffers = {{100, 0, 1}, {100, 2, 3}, {50, 0, 3}};
  EXPECT_EQ(lay_out(buffers), 150u);
  EXPECT_EQ(buffers[0].offset, buffers[1].offset);
}

TEST(Layout, FindsWhenMostIsAlive) {
  const std::vector<Buffer> buffers = {{10, 0, 2}, {20, 1, 1}, {5, 2, 4}};
  int step = -1;
  EXPECT_EQ(most_alive(buffers, &step), 30u);
  EXPECT_EQ(step, 1);
}

// The best of all orders in which each buffer goes to the lowest place that is free.
size_t best_of_all_orders(const std::vector<Buffer>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  size_t best = SIZE_MAX;
  do {
    std::vector<Buffer> placed;
    size_t arena = 0;
    for (const size_t i : order) {
      Buffer buffer = buffers[i];
      // Lowest places are where another ends, or the beginning.
      std::vector<size_t> starts{0};
      for (const Buffer& other : placed) starts.push_back(other.offset + other.bytes);
      std::sort(starts.begin(), starts.end());
      for (const size_t start : starts) {
        buffer.offset = start;
        if (std::none_of(placed.begin(), placed.end(),
                         [&](const Buffer& other) { return overlap(buffer, other); }))
          break;
      }
      placed.push_back(buffer);
      arena = std::max(arena, buffer.offset + buffer.bytes);
    }
    best = std::min(best, arena);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

// Small cases against brute force: never below what is alive at once, never below the best of all
// orders, seldom above it.
TEST(Layout, AgainstAllOrders) {
  std::mt19937_64 words(7);
  const auto draw = [&](uint64_t many) { return words() % many; };
  int best = 0, all = 300;
  for (int i = 0; i < all; ++i) {
    std::vector<Buffer> buffers(1 + draw(6));
    for (Buffer& buffer : buffers) {
      buffer.first = static_cast<int>(draw(5));
      buffer.last = buffer.first + static_cast<int>(draw(4));
      buffer.bytes = 64 * draw(6);
    }
    const size_t arena = lay_out(buffers), least = best_of_all_orders(buffers);
    EXPECT_GE(arena, most_alive(buffers));
    EXPECT_GE(least, most_alive(buffers));
    EXPECT_GE(arena, least);
    EXPECT_LE(arena, 2 * least);
    best += arena == least;
    for (size_t a = 0; a < buffers.size(); ++a) {
      EXPECT_EQ(buffers[a].offset % 64, 0u);
      for (size_t b = 0; b < a; ++b) EXPECT_FALSE(overlap(buffers[a], buffers[b]));
    }
  }
  EXPECT_GE(best, all * 9 / 10);
}

// What has no bytes takes no place and is in nobody's way.
TEST(Layout, EmptyBuffersAreInNobodysWay) {
  std::vector<Buffer> buffers = {{0, 0, 9}, {64, 0, 1}, {0, 1, 8}, {128, 1, 2}, {0, 0, 2}, {64, 2, 9}};
  EXPECT_EQ(lay_out(buffers), 192u);
  EXPECT_EQ(most_alive(buffers), 192u);
  std::vector<Buffer> empty = {{0, 0, 9}, {0, 3, 4}};
  EXPECT_EQ(lay_out(empty), 0u);
}

TEST(Layout, NothingTakesNothing) {
  EXPECT_EQ(lay_out({}), 0u);
  EXPECT_EQ(most_alive({}), 0u);
}

}  // namespace
}  // namespace ulp
