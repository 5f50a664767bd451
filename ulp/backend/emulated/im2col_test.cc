// How batches are cut for kernels that count in 32 bits. No test has memory for such a batch, so the
// arithmetic is tested by itself.
#include "ulp/backend/cuda/library/im2col.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ulp::cuda {
namespace {

using Slices = std::vector<std::pair<uint64_t, uint64_t>>;

Slices slices(uint64_t images, uint64_t numbers_per_image) {
  Slices made;
  in_slices_of_images(images, numbers_per_image,
                      [&](uint64_t first, uint64_t count) { made.emplace_back(first, count); });
  return made;
}

TEST(Im2col, BatchesAreCutWhereNumbersEnd) {
  EXPECT_EQ(slices(0, 7), Slices{});
  EXPECT_EQ(slices(1000, 1 << 21), (Slices{{0, 1000}}));
  EXPECT_EQ(slices(1024, 1 << 21), (Slices{{0, 1024}}));
  EXPECT_EQ(slices(1025, 1 << 21), (Slices{{0, 1024}, {1024, 1}}));
  EXPECT_EQ(slices(5, uint64_t{1} << 30), (Slices{{0, 2}, {2, 2}, {4, 1}}));
  EXPECT_EQ(slices(3, uint64_t{1} << 31), (Slices{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(slices(2, uint64_t{1} << 40), (Slices{{0, 1}, {1, 1}}));
}

// 2^32 numbers in all, which 32 bits hold as none.
TEST(Im2col, EveryImageIsInOneSlice) {
  for (const uint64_t per_image : {uint64_t{1} << 16, uint64_t{1} << 20, uint64_t{3} << 19}) {
    const uint64_t images = (uint64_t{1} << 32) / per_image;
    uint64_t next = 0;
    for (const auto& [first, count] : slices(images, per_image)) {
      EXPECT_EQ(first, next);
      EXPECT_LE(count * per_image, uint64_t{1} << 31);
      next += count;
    }
    EXPECT_EQ(next, images);
  }
}

// Images one by one give what they give together: addresses of both sides move along.
TEST(Im2col, CodesOfOneImageAreThoseOfTheBatch) {
  ConvExtents32 window;
  window.n = 3;
  window.h = 5, window.w = 4, window.c = 3;
  window.kernel_h = window.kernel_w = 3;
  window.padding_h = window.padding_w = 1;
  window.out_h = 5, window.out_w = 4, window.out_c = 8;
  constexpr uint32_t kPadded = 32;
  const size_t codes = size_t{5} * 4 * 3, rows = size_t{5} * 4 * kPadded;
  for (const uint32_t bytes : {1u, 2u}) {
    std::vector<uint8_t> in(3 * codes * bytes);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 37 + 1);
    std::vector<uint4> all(3 * rows * bytes / sizeof(uint4)), one(rows * bytes / sizeof(uint4));
    gather_codes(in.data(), bytes, window, 3, kPadded, all.data(), nullptr);
    for (size_t image = 0; image < 3; ++image) {
      gather_codes(in.data() + image * codes * bytes, bytes, window, 1, kPadded, one.data(), nullptr);
      EXPECT_EQ(std::memcmp(one.data(), all.data() + image * one.size(), rows * bytes), 0);
    }
  }
}

}  // namespace
}  // namespace ulp::cuda
