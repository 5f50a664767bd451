#include "ulp/base/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace ulp {
namespace {

// Pinned: a run that is resumed by another build or on another device must see the same examples.
constexpr Augment kPinned{12345678901234567u, 4, true};
constexpr bool same(const Placement& a, const Placement& b) {
  return a.down == b.down && a.right == b.right && a.mirrored == b.mirrored;
}
static_assert(same(placement(kPinned, 0, 0), {-4, 0, true}));
static_assert(same(placement(kPinned, 1, 0), {1, -1, true}));
static_assert(same(placement(kPinned, 0, 59999), {-2, 4, true}));
static_assert(same(placement(kPinned, 7, uint64_t{1} << 33), {-3, 3, false}));
static_assert(same(placement({1, 0, false}, 3, 4), {0, 0, false}));

// Every count within five standard deviations of n * p.
void expect_share(double count, double n, double p, const char* what) {
  EXPECT_LE(std::abs(count - n * p), 5 * std::sqrt(n * p * (1 - p))) << what << ": " << count << " of " << n;
}

TEST(Augment, OffsetsAreUniformAndIndependent) {
  constexpr int kExamples = 200000, kPadding = 4, kOffsets = 2 * kPadding + 1;
  std::map<std::pair<int, int>, int> offsets;
  std::map<std::pair<int, bool>, int> mirrors;
  for (int i = 0; i < kExamples; ++i) {
    const Placement p = placement({7, kPadding, true}, 3, static_cast<uint64_t>(i));
    ++offsets[{p.down, p.right}];
    ++mirrors[{p.right, p.mirrored}];
  }
  ASSERT_EQ(offsets.size(), 81u);
  ASSERT_EQ(mirrors.size(), 18u);
  EXPECT_EQ(offsets.begin()->first, std::pair(-kPadding, -kPadding));
  for (const auto& [at, count] : offsets)
    expect_share(count, kExamples, 1.0 / (kOffsets * kOffsets), "offset");
  for (const auto& [at, count] : mirrors) expect_share(count, kExamples, 0.5 / kOffsets, "mirror");
}

TEST(Augment, DependsOnSeedEpochAndIndex) {
  int by_seed = 0, by_epoch = 0, by_index = 0;
  constexpr int kExamples = 10000;
  for (uint64_t i = 0; i < kExamples; ++i) {
    const Placement p = placement({1, 4, true}, 0, i);
    by_seed += same(p, placement({2, 4, true}, 0, i));
    by_epoch += same(p, placement({1, 4, true}, 1, i));
    by_index += same(p, placement({1, 4, true}, 0, i + 1));
  }
  // Two of 81 * 2 placements agree by chance.
  expect_share(by_seed, kExamples, 1.0 / 162, "seed");
  expect_share(by_epoch, kExamples, 1.0 / 162, "epoch");
  expect_share(by_index, kExamples, 1.0 / 162, "index");
}

TEST(Augment, OneOfTheTwoLeavesTheOtherOff) {
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_FALSE(placement({5, 2, false}, 0, i).mirrored);
    const Placement p = placement({5, 0, true}, 0, i);
    EXPECT_EQ(std::pair(p.down, p.right), std::pair(0, 0));
    // Whether an example is mirrored does not hang on the crop.
    EXPECT_EQ(p.mirrored, placement({5, 3, true}, 0, i).mirrored);
  }
}

// The obvious way: put zeros around, cut out, reverse rows.
TEST(Augment, PlacesBytesLikePaddingCuttingAndReversing) {
  constexpr int kHeight = 5, kWidth = 7, kChannels = 3, kPadding = 3;
  std::vector<uint8_t> image(105);
  std::iota(image.begin(), image.end(), uint8_t{1});
  using Pixel = std::vector<uint8_t>;
  const Pixel zero(kChannels, 0);
  std::vector<std::vector<Pixel>> padded(kHeight + 2 * kPadding,
                                         std::vector<Pixel>(kWidth + 2 * kPadding, zero));
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const auto* const pixel = image.data() + (ptrdiff_t{y} * kWidth + x) * kChannels;
      padded.at(y + kPadding).at(x + kPadding) = {pixel, pixel + kChannels};
    }
  }
  for (int down = -kPadding; down <= kPadding; ++down) {
    for (int right = -kPadding; right <= kPadding; ++right) {
      for (const bool mirrored : {false, true}) {
        for (int y = 0; y < kHeight; ++y) {
          const auto& line = padded.at(y + down + kPadding);
          std::vector<Pixel> row(line.begin() + right + kPadding, line.begin() + right + kPadding + kWidth);
          if (mirrored) std::reverse(row.begin(), row.end());
          for (int x = 0; x < kWidth; ++x) {
            for (int c = 0; c < kChannels; ++c) {
              ASSERT_EQ(
                  placed_byte(image.data(), kHeight, kWidth, kChannels, {down, right, mirrored}, y, x, c),
                  row.at(x).at(c))
                  << down << " " << right << " " << mirrored << " " << y << " " << x << " " << c;
            }
          }
        }
      }
    }
  }
}

// Each operation rounded once to fp32. Sums and products of two fp32 numbers of this size are exact in fp64,
// quotients rounded there first are still right in fp32.
TEST(Augment, NormalisesWithTwoRoundings) {
  const auto rounded = [](double x) { return static_cast<float>(x); };
  for (const auto& [mean, deviation] :
       {std::pair(0.4914f, 0.2023f), {0.1307f, 0.3081f}, {0.0f, 1.0f / 255}}) {
    const float shift = rounded(double{mean} * 255), scale = rounded(1 / double{rounded(255.0 * deviation)});
    for (int byte = 0; byte < 256; ++byte) {
      const float got = normalised(static_cast<uint8_t>(byte), make_normalise(mean, deviation));
      const float right = rounded(double{rounded(byte - double{shift})} * scale);
      ASSERT_EQ(float_bits(got), float_bits(right)) << byte;
      ASSERT_NEAR(got, (byte / 255.0 - mean) / deviation, 1e-5 * std::max(1.0, std::abs(double{got})));
    }
  }
  EXPECT_EQ(float_bits(normalised(0, make_normalise(0.4914f, 0.2023f))), 0xc01b75d0u);
  EXPECT_EQ(float_bits(normalised(200, make_normalise(0.4914f, 0.2023f))), 0x3fb9555du);
}

}  // namespace
}  // namespace ulp
