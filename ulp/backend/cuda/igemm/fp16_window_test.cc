#include "ulp/backend/cuda/igemm/fp16_window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "ulp/numeric/format.h"
#include "ulp/numeric/quick.h"

namespace ulp::cuda {
namespace {

constexpr std::string_view kFormats[] = {"fp(6,9,0)", "fp(7,8,0)", "fp(8,7,4)", "fp(5,10,0)", "fp(6,9,3)"};

struct Codes {
  QuickCodec codec;
  Fp16Source fp16_source;

  explicit Codes(std::string_view name)
      : codec(make_quick(make_spec(parse_format(name), Overflow::saturate))) {
    fp16_source = {static_cast<uint32_t>(codec.spec.man), 1 - codec.spec.emin,
                   codec.spec.max_code >> codec.spec.man};
  }
  double value(uint32_t code) const { return bits_float(decode_quick(codec, code)); }
  uint32_t windows() const { return fp16_source.top - 29; }
};

// Through the compiler's own fp16 type.
double fp16_value(uint32_t pattern) {
  const auto bits = static_cast<uint16_t>(pattern);
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<double>(half);
}

TEST(Fp16Window, EveryCodeInEveryWindowIsExactOrOutside) {
  for (const std::string_view name : kFormats) {
    const Codes codes(name);
    for (uint32_t offset = 0; offset < codes.windows(); ++offset) {
      const Fp16Window window = Fp16Window::of(codes.fp16_source, offset);
      const double factor = std::ldexp(1.0, codes.fp16_source.bias - 15 - static_cast<int>(offset));
      size_t wrong = 0;
      for (uint32_t code = 0; code < 0x10000u; ++code) {
        const uint32_t field = (code & 0x7FFFu) >> codes.fp16_source.man;
        const bool within =
            (code & 0x7FFFu) == 0 || (field <= offset + 30 && (offset == 0 || field > offset));
        // In each position of a piece in turn, among zeros.
        const uint32_t place = code % 8;
        uint32_t word[4] = {0, 0x80008000u, 0, 0x00008000u};
        uint32_t& own = word[place / 2];
        own = (own & ~(0xFFFFu << (16 * (place % 2)))) | code << (16 * (place % 2));
        HalvesSeen seen;
        to_fp16(window, word, seen);
        wrong += seen.outside(window) == within ? 1 : 0;
        for (uint32_t i = 0; i < 8 && within; ++i) {
          const uint32_t half = word[i / 2] >> (16 * (i % 2)) & 0xFFFFu;
          if (i != place) {
            wrong += (half & 0x7FFFu) != 0 ? 1 : 0;
          } else {
            wrong += fp16_value(half) != codes.value(code) * factor ? 1 : 0;
            wrong += half >> 15 != code >> 15 ? 1 : 0;
          }
        }
      }
      EXPECT_EQ(wrong, 0u) << name << " offset " << offset;
    }
  }
}

// For a value below the window, the fp16 number plus the missing part is the value, and the missing
// part's mantissa is no longer than the value's.
TEST(Fp16Window, WhatIsMissingBelowTheWindowIsKnown) {
  for (const std::string_view name : {"fp(6,9,0)", "fp(7,8,0)", "fp(6,9,3)"}) {
    const Codes codes(name);
    for (uint32_t offset = 0; offset < codes.windows(); ++offset) {
      const Fp16Window window = Fp16Window::of(codes.fp16_source, offset);
      const double factor = std::ldexp(1.0, codes.fp16_source.bias - 15 - static_cast<int>(offset));
      size_t wrong = 0;
      for (uint32_t code = 0; code < 0x10000u; ++code) {
        const uint32_t field = (code & 0x7FFFu) >> codes.fp16_source.man;
        const bool below = offset != 0 && (code & 0x7FFFu) != 0 && field <= offset;
        wrong += lies_below(window, code) != below ? 1 : 0;
        uint32_t word[4] = {0, 0, code << 16, 0};
        HalvesSeen seen;
        to_fp16(window, word, seen);
        wrong += seen.below(window) != below ? 1 : 0;
        wrong += seen.above(window) != (field > offset + 30) ? 1 : 0;
        if (!below) continue;
        const float missing = missing_part(codes.fp16_source, window, offset, code);
        wrong += fp16_value(word[2] >> 16) + missing != codes.value(code) * factor ? 1 : 0;
        // Mantissas of products with fp16 numbers fit fp32's.
        wrong += (float_bits(missing) & ((1u << (23 - codes.fp16_source.man)) - 1)) != 0 ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << name << " offset " << offset;
    }
  }
}

// A value outside is detected in any position and among any others.
TEST(Fp16Window, NothingHidesANumberOutside) {
  const Codes codes("fp(6,9,0)");
  for (const uint32_t offset : {0u, 1u, 5u, 33u}) {
    const Fp16Window window = Fp16Window::of(codes.fp16_source, offset);
    const uint32_t low = (offset + 1) << 9, high = ((offset + 31) << 9) - 1;
    std::vector<uint32_t> outside;
    if (offset > 0) outside.insert(outside.end(), {1u, low - 1});
    if (offset < 33) outside.insert(outside.end(), {high + 1, 0x7FFFu});
    for (const uint32_t other : {0u, 0x8000u, low, high, high | 0x8000u}) {
      HalvesSeen clean;
      for (uint32_t place = 0; place < 8; ++place) {
        uint32_t word[4];
        for (uint32_t& two : word) two = other * 0x00010001u;
        to_fp16(window, word, clean);
        for (const uint32_t code : outside) {
          HalvesSeen seen;
          uint32_t bad[4], good[4];
          for (uint32_t i = 0; i < 4; ++i) bad[i] = good[i] = other * 0x00010001u;
          const uint32_t shift = 16 * (place % 2);
          bad[place / 2] = (bad[place / 2] & ~(0xFFFFu << shift)) | code << shift;
          to_fp16(window, bad, seen);
          to_fp16(window, good, seen);
          EXPECT_TRUE(seen.outside(window)) << offset << " " << code << " among " << other;
        }
      }
      EXPECT_FALSE(clean.outside(window)) << offset << " " << other;
    }
  }
}

// The window's highest field is that of the largest value once rounded, and every value fits below
// it.
TEST(Fp16Window, TheWindowFollowsTheLargestNumber) {
  for (const std::string_view name : kFormats) {
    const Codes codes(name);
    EXPECT_EQ(window_offset(codes.fp16_source, 0), 0u) << name;
    EXPECT_EQ(window_offset(codes.fp16_source, 0x7F800000u), codes.fp16_source.top - 30) << name;
    EXPECT_EQ(window_offset(codes.fp16_source, 0x7F7FFFFFu), codes.fp16_source.top - 30) << name;
    for (uint32_t bits = 0; bits < 0x7F800000u; bits += 0x1FFFu) {
      const uint32_t field = encode_even(codes.codec, bits).code >> codes.fp16_source.man;
      ASSERT_EQ(window_offset(codes.fp16_source, bits), field > 30 ? field - 30 : 0) << name << " " << bits;
    }
  }
}

TEST(Fp16Window, EveryHalfIsMadeAndNothingElse) {
  for (uint32_t half = 0; half < 0x10000u; ++half) {
    const double value = fp16_value(half);
    if (!std::isfinite(value)) continue;
    const auto scaled = static_cast<float>(std::ldexp(value, -112));
    ASSERT_EQ(fp16_of(float_bits(scaled)), half);
    ASSERT_EQ(not_fp16(float_bits(scaled)), 0u);
  }
  for (const double value : {65536.0, -65536.0, 1e30, 1.0 + std::ldexp(1.0, -11), std::ldexp(1.0, -25)}) {
    EXPECT_NE(not_fp16(float_bits(static_cast<float>(std::ldexp(value, -112)))), 0u) << value;
  }
  EXPECT_NE(not_fp16(0x7F800000u), 0u);
  EXPECT_NE(not_fp16(0xFFC00000u), 0u);
}

}  // namespace
}  // namespace ulp::cuda
