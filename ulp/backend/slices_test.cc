#include "ulp/backend/slices.h"

#include <gtest/gtest.h>

namespace ulp {
namespace {

TEST(BatchSlices, ABatchThatFitsIsOneSlice) {
  const BatchSlices batch{.items = 100, .quantum = 8, .item_bytes = 10};
  EXPECT_EQ(batch.slices_within(1000), 1);
  EXPECT_EQ(batch.slice(1), 100);
  EXPECT_EQ(batch.even_slice(1), 100);
  EXPECT_EQ(batch.slice_within(1040), 100);  // whole quanta
  EXPECT_EQ(batch.slice_within(5000), 100);
}

TEST(BatchSlices, SlicesHaveWholeQuantaAndARemainder) {
  const BatchSlices batch{.items = 100, .quantum = 8, .item_bytes = 10};
  EXPECT_EQ(batch.slices_within(999), 2);
  EXPECT_EQ(batch.slice(2), 56);
  EXPECT_EQ(batch.slices_within(330), 4);
  EXPECT_EQ(batch.slice(4), 32);  // 32, 32, 32, 4
  EXPECT_EQ(batch.slice_within(330), 32);
  EXPECT_EQ(batch.slice_within(319), 24);
}

TEST(BatchSlices, EvenSlicesHaveNoRemainderIfLittleMoreOfThemDo) {
  const BatchSlices batch{.items = 96, .quantum = 8, .item_bytes = 1};
  EXPECT_EQ(batch.slice(5), 24);
  EXPECT_EQ(batch.even_slice(5), 16);  // six of them
  EXPECT_EQ(batch.even_slice(7), 8);   // twelve
  EXPECT_EQ((BatchSlices{.items = 100, .quantum = 8}).even_slice(3), 40);
  EXPECT_EQ(batch.more_slices(1), 2);
  EXPECT_EQ(batch.more_slices(5), 7);
  EXPECT_EQ(batch.more_slices(12), 96);  // no slice is smaller than a quantum
}

TEST(BatchSlices, TooLittleRoomGivesTheSmallestSlice) {
  const BatchSlices batch{.items = 100, .quantum = 8, .item_bytes = 10};
  for (const size_t room : {size_t{0}, size_t{1}, size_t{79}}) {
    EXPECT_EQ(batch.slice_within(room), 8) << room;
    EXPECT_EQ(batch.slice(batch.slices_within(room)), 8) << room;
    EXPECT_EQ(batch.even_slice(batch.slices_within(room)), 8) << room;
  }
  EXPECT_EQ(batch.least(), 8);
}

TEST(BatchSlices, SlicesOfAtMostSoManyItems) {
  const BatchSlices batch{.items = 100, .quantum = 8};
  for (const int64_t most : {1, 7, 8, 9, 31, 32, 33, 50, 96, 99, 100, 101}) {
    const int64_t slices = batch.slices_of_at_most(most);
    EXPECT_LE(batch.slice(slices), std::max<int64_t>(most, 8)) << most;
    if (slices > 1) {
      EXPECT_GT(batch.slice(slices - 1), most) << most;
    }
  }
  EXPECT_EQ(batch.slices_of_at_most(100), 1);
  EXPECT_EQ(batch.slices_of_at_most(99), 2);
  // Counts of 32 bits would have lost these.
  const BatchSlices large{.items = int64_t{1} << 40, .quantum = 3};
  const int64_t slices = large.slices_of_at_most((int64_t{1} << 31) - 1);
  EXPECT_LT(large.slice(slices), int64_t{1} << 31);
  EXPECT_EQ(slices, 513);
}

TEST(BatchSlices, ABatchOfOneIsNeverCut) {
  const BatchSlices batch{.items = 1, .quantum = 8, .item_bytes = 1000};
  EXPECT_EQ(batch.least(), 1);
  for (const size_t room : {size_t{0}, size_t{10}, size_t{5000}}) {
    EXPECT_EQ(batch.slice_within(room), 1) << room;
    EXPECT_EQ(batch.slice(batch.slices_within(room)), 1) << room;
    EXPECT_EQ(batch.even_slice(batch.slices_within(room)), 1) << room;
  }
}

TEST(BatchSlices, NothingDecodedNeedsNoSlices) {
  const BatchSlices batch{.items = 100};
  EXPECT_EQ(batch.slices_within(0), 1);
  EXPECT_EQ(batch.slice_within(0), 100);
}

// Packed codes of 3 bits begin at whole bytes every 8 elements, and tensors agree on a quantum.
TEST(BatchSlices, QuantumIsThatOfAllTensors) {
  BatchSlices batch{.items = 100};
  batch.add_decoded(8, 6);
  EXPECT_EQ(batch.quantum, 4);
  EXPECT_EQ(batch.item_bytes, 24u);
  batch.add_decoded(1, 5);
  batch.add_decoded(3, 2);
  EXPECT_EQ(batch.quantum, 12);
  EXPECT_EQ(batch.item_bytes, 52u);
  EXPECT_EQ(batch.whole_quanta(13), 24);
}

}  // namespace
}  // namespace ulp
