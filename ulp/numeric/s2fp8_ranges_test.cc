// The kernels behind S2FP8 against the definition, on every vector unit: what the first pass over a
// tensor gathers, Y, and codes as ranges of magnitudes.
#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/numeric/kernels.h"
#include "ulp/numeric/s2fp8.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<float> magnitudes() {
  std::vector<float> all = {FLT_MAX, std::nextafter(FLT_MAX, 0.0f), FLT_MIN, 0x1p-149f, 3 * 0x1p-149f};
  std::mt19937 rng(2);
  for (int e = -149; e <= 127; ++e) {
    all.push_back(std::ldexp(1.0f, e));
    for (int k = 0; k < 20; ++k) all.push_back(std::ldexp(1 + static_cast<float>(rng() >> 9) * 0x1p-23f, e));
  }
  return all;
}

TEST(S2fp8Ranges, UnitsGiveTheBitsOfTheDefinition) {
  // Every part of a vector, every exponent, and the patterns before codes hide them.
  std::vector<float> in = magnitudes();
  std::mt19937 rng(8);
  for (int k = 0; k < 60'000; ++k) in.push_back(float_of(rng()));
  for (const std::string& unit : simd_names()) {
    use_simd(unit);
    const kernels::Table& table = kernels::table();
    const auto same_survey = [&](const float* from, size_t n) {
      const kernels::S2fp8Survey got = table.survey(from, n), want = kernels::reference_survey(from, n);
      return got.logs.sum == want.logs.sum && got.logs.count == want.logs.count &&
             got.logs.max == want.logs.max && got.infinite == want.infinite && got.nan == want.nan &&
             got.most == want.most;
    };
    for (size_t n = 0; n <= 70; ++n) EXPECT_TRUE(same_survey(in.data() + n, n)) << unit << " " << n;
    for (const float& x : in) ASSERT_TRUE(same_survey(&x, 1)) << unit << " " << x;
    EXPECT_TRUE(same_survey(in.data(), in.size())) << unit;
    // Without what takes a block more steps, and the largest sums of exponents and fractions
    // that a block can have.
    std::vector<float> plain;
    for (const float x : in) {
      if (x == 0 || std::isnormal(x)) plain.push_back(x);
    }
    EXPECT_TRUE(same_survey(plain.data(), plain.size())) << unit;
    for (const float x :
         {0x1.6a09e4p127f, 0x1.6a09e6p127f, 0x1.6a09e8p0f, 0x1.6a09e8p-126f, FLT_MIN, FLT_MAX}) {
      const std::vector<float> many(40'001, x);
      EXPECT_TRUE(same_survey(many.data(), many.size())) << unit << " " << x;
    }
    for (const S2fp8Stats& stats : {S2fp8Stats{1, 0}, {0.06f, 3}, {1024, 1e5f}, {7.7f, -300}}) {
      const S2fp8Map map = s2fp8_map(stats);
      std::vector<float> got(in.size()), want(in.size());
      table.squeeze(map, in.data(), in.size(), got.data());
      kernels::reference_squeeze(map, in.data(), in.size(), want.data());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << unit;
    }
  }
  use_simd("auto");
}

uint32_t defined_code(const S2fp8Map& map, uint32_t magnitude) {
  static const CodecSpec e5m2 = make_spec(parse_format("e5m2"), Overflow::saturate);
  const Encoded made = encode_scalar(e5m2, Round::nearest_even, s2fp8_squeeze(map, magnitude), 0);
  return made.event == RangeEvent::overflow ? e5m2.max_code + 1 : made.code;
}

// The ranges of codes against the definition: on both sides of every border, and at random. What the
// slow suite adds (tests/power_test.cc) is that there is one border for each code.
TEST(S2fp8Ranges, RangesOfCodesAreThoseOfTheDefinition) {
  std::mt19937 rng(9);
  std::vector<S2fp8Stats> all = {{1, 0},   {15 / 277.0f, 0}, {1024, 0}, {1024, -1024 * 127.5f},
                                 {1, 149}, {4.7f, 4}};
  for (int k = 0; k < 40; ++k) {
    const float alpha = std::exp2(std::uniform_real_distribution<float>(-4, 10)(rng));
    all.push_back({alpha, alpha * std::uniform_real_distribution<float>(-127, 140)(rng)});
  }
  for (const std::string& unit : simd_names()) {
    use_simd(unit);
    const kernels::Table& table = kernels::table();
    size_t cut = 0;
    for (const S2fp8Stats& stats : all) {
      SCOPED_TRACE(fmt::format("{} {} {}", unit, stats.alpha, stats.beta));
      const S2fp8Map map = s2fp8_map(stats);
      kernels::S2fp8Borders borders;
      table.find_borders(map, kernels::s2fp8_starts().data(), borders);
      std::vector<float> in = {0.0f, -0.0f, INFINITY, -INFINITY};
      for (uint32_t code = 1; code < kernels::kS2fp8Codes; ++code) {
        const uint32_t least = borders.least[code];
        if (least == kernels::kNoMagnitude) {
          EXPECT_LT(defined_code(map, 0x7F7FFFFFu), code);
          continue;
        }
        ASSERT_GE(defined_code(map, least), code);
        ASSERT_LT(defined_code(map, least - 1), code);
        for (const int k : {-2, -1, 0, 1})
          in.push_back(float_of((least + static_cast<uint32_t>(k)) & 0x7FFFFFFFu));
      }
      for (int k = 0; k < 20'000; ++k) in.push_back(float_of(rng()));
      std::erase_if(in, [](float x) { return std::isnan(x); });
      if (table.encode_by_borders == nullptr || !kernels::cut_buckets(borders)) continue;
      ++cut;
      for (const size_t n : {in.size(), size_t{1}, size_t{15}, size_t{33}}) {
        std::vector<uint8_t> codes(n);
        const uint64_t zeros = table.encode_by_borders(borders, in.data(), n, codes.data());
        uint64_t expected = 0;
        for (size_t i = 0; i < n; ++i) {
          const uint32_t magnitude = bits_of(in[i]) & 0x7FFFFFFFu, code = defined_code(map, magnitude);
          expected += code == 0 ? 1 : 0;
          ASSERT_EQ(codes[i], code | (std::signbit(in[i]) ? 0x80u : 0u)) << in[i];
        }
        EXPECT_EQ(zeros, expected);
      }
    }
    EXPECT_TRUE(cut > 20 || table.encode_by_borders == nullptr) << unit;
  }
  use_simd("auto");
}

// Near the start of a code, no logarithm of Y has the code of the other side. The slow suite tries all
// arguments of a power (tests/power_test.cc).
TEST(S2fp8Ranges, CodesGrowWithTheirLogarithms) {
  const auto& starts = kernels::s2fp8_starts();
  static const CodecSpec e5m2 = make_spec(parse_format("e5m2"), Overflow::saturate);
  for (uint32_t code = 1; code <= 124; ++code) {
    ASSERT_LT(starts[code - 1], starts[code]);
    float t = starts[code];
    for (int k = 0; k < 200; ++k) t = std::nextafter(t, -INFINITY);
    for (int k = -200; k < 200; ++k, t = std::nextafter(t, INFINITY)) {
      const Encoded made = encode_scalar(e5m2, Round::nearest_even, s2fp8_power(t), 0);
      const uint32_t got = made.event == RangeEvent::overflow ? 124 : made.code;
      ASSERT_EQ(got, k < 0 ? code - 1 : code) << code << " " << k;
    }
  }
}

TEST(S2fp8Ranges, LogarithmsOfCodesAreThoseOfNumbers) {
  const CodecSpec e5m2 = make_spec(parse_format("e5m2"), Overflow::saturate);
  for (uint32_t code = 1; code <= e5m2.max_code; ++code) {
    const uint32_t value = decode_scalar(e5m2, code);
    EXPECT_EQ(log2_of_e5m2(value), log2_fixed(value)) << code;
  }
}

}  // namespace
}  // namespace ulp
