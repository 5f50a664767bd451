#include "ulp/plan/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
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

TEST(Layout, NothingTakesNothing) {
  EXPECT_EQ(lay_out({}), 0u);
  EXPECT_EQ(most_alive({}), 0u);
}

}  // namespace
}  // namespace ulp
