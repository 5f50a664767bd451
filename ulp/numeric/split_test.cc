// Split storage against a reference in double, worked out from the words of split.h.
//
// Why double is exact here: an fp32 number has 24 significant bits and a spacing is a power of two,
// so every quotient by a spacing, its floor, its fraction and fraction * 2^32 are exact.
#include "ulp/numeric/split.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

constexpr RoundKey kKey = {.seed = 0xfeedfacecafebeef, .step = 3, .tensor = 0x1234567, .micro_batch = 9};
// fp(4,3,130): its normal numbers begin below fp32's. fp(7,0,0): no mantissa bits of its own.
const char* const kHighFormats[] = {"bf16",      "fp16",        "e5m2",           "e4m3",     "fp(4,3,4)",
                                    "fp(6,9,0)", "fp(4,3,130)", "fp(4,3,0,ieee)", "fp(7,0,0)"};

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

double top_spacing(const FloatFormat& f) { return std::ldexp(1.0, f.emax() - f.man); }

// What a split number must be.
struct Expected {
  double wide;    // what is restored
  double high;    // what the high part reads as
  uint32_t side;  // the bits beside it
  bool nan, overflow, underflow;
};

Expected reference(const Split& split, Overflow overflow, float x, uint32_t random) {
  const FloatFormat& f = split.high;
  const double infinity = std::numeric_limits<double>::infinity(), sign = std::signbit(x) ? -1 : 1;
  const int n = split.extra;
  const uint32_t ones = (1u << n) - 1;
  const double max_high = largest(f);
  const double max_wide = max_high + top_spacing(f) - std::ldexp(top_spacing(f), -n);
  const auto saturated = [&](bool nan) -> Expected {
    return {sign * max_wide, sign * max_high, ones, nan, !nan, false};
  };
  const Expected over = overflow == Overflow::infinity
                            ? Expected{sign * infinity, sign * infinity, 0, false, true, false}
                            : saturated(false);
  if (std::isnan(x)) return f.has_nan() ? Expected{NAN, NAN, 0, true, false, false} : saturated(true);
  if (std::isinf(x)) return over;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude == 0) return {sign * 0.0, sign * 0.0, 0, false, false, false};
  // Nearest-even on the grid of fp(e, m + N), the exponent unbounded.
  const auto spacing = [&](double v, int man) {
    return std::ldexp(1.0, std::max(std::ilogb(v), f.emin()) - man);
  };
  const double fine = spacing(magnitude, f.man + n);
  const double units = magnitude / fine, below = std::floor(units), fraction = units - below;
  // With no mantissa bit at all the significands on both sides of a tie are 1: up, except from
  // zero.
  const bool tie_up = f.man + n == 0 ? below > 0 : std::fmod(below, 2) == 1;
  const double wide = (below + (fraction > 0.5 || (fraction == 0.5 && tie_up) ? 1 : 0)) * fine;
  if (wide > max_wide) return over;
  if (wide == 0) return {sign * 0.0, sign * 0.0, 0, false, false, true};
  const double coarse = spacing(wide, f.man);
  const double low = std::floor(wide / coarse) * coarse;
  const double rest = (wide - low) / coarse;  // in [0, 1), a multiple of 2^-N
  uint32_t side = static_cast<uint32_t>(std::ldexp(rest, n));
  double high = low;
  if (split.stochastic && random < std::floor(rest * 0x1p32) && low < max_high) {
    high = low + coarse;
    side += 1u << n;
  }
  return {sign * wide, sign * high, side, false, false, false};
}

bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

struct Stored {
  std::vector<uint8_t> high;
  std::vector<uint32_t> side;
  EncodeStats stats;
  bool operator==(const Stored&) const = default;
};

Stored store(const Split& split, Overflow overflow, std::span<const float> in, uint64_t first = 0,
             ExponentHistogram* histogram = nullptr) {
  const size_t n = in.size();
  Stored s{std::vector<uint8_t>(n * split.high.bits() / 8, 0xAA),
           std::vector<uint32_t>((n * split.side_bits() + 31) / 32, 0xAAAAAAAA),
           {}};
  s.stats = split_encode(split, overflow, kKey, in, s.high, s.side, first, histogram);
  return s;
}

std::vector<uint32_t> patterns(std::span<const float> values) {
  std::vector<uint32_t> result;
  for (const float x : values) result.push_back(bits_of(x));
  return result;
}

std::vector<uint32_t> restored(const Split& split, const Stored& s, size_t n) {
  std::vector<float> out(n, -1.0f);
  split_decode(split, s.high, s.side, out);
  return patterns(out);
}

// Value i is in bits [i B, (i + 1) B) of the words, least significant first: one bit at a time.
uint32_t side_of(const Split& split, const Stored& s, size_t i) {
  uint32_t side = 0;
  for (int b = 0; b < split.side_bits(); ++b) {
    const size_t bit = i * split.side_bits() + b;
    side |= (s.side[bit / 32] >> (bit % 32) & 1) << b;
  }
  return side;
}

// Borders between high codes, between wide codes, and a step of fp32 to either side; both signs;
// every special there is; random patterns. An odd number of them.
std::vector<float> hard_inputs(const Split& split) {
  const FloatFormat& f = split.high;
  std::vector<float> in;
  const auto add = [&](double v) {
    const float x = static_cast<float>(v), inf = std::numeric_limits<float>::infinity();
    for (const float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, inf)}) {
      in.push_back(y);
      in.push_back(-y);
    }
  };
  std::mt19937 rng(7);
  for (int k = 0; k < 200; ++k) {
    const uint32_t code = k < 4 ? f.max_code() - k : k < 8 ? k - 4 : rng() % (f.max_code() + 1);
    std::vector<uint8_t> byte = {static_cast<uint8_t>(code), static_cast<uint8_t>(code >> 8)};
    float value;
    decode(f, byte, {&value, 1});
    const double coarse =
        std::ldexp(1.0, value == 0 ? f.emin() - f.man : std::max(std::ilogb(value), f.emin()) - f.man);
    const double fine = std::ldexp(coarse, -split.extra);
    add(value);
    add(value + coarse - fine);      // all extra bits set
    add(value + coarse - fine / 2);  // halfway to the next high code
    add(value + fine / 2);
    add(value + fine * (rng() % (1u << split.extra)) + fine / 2);
  }
  add(std::ldexp(1.0, f.emin()));
  add(top_spacing(f) + largest(f));  // the first number past every wide one
  for (const uint32_t p : {0u, 1u, 0x7FFFFFu, 0x800000u, 0x7F7FFFFFu, 0x7F800000u, 0x7FC00000u, 0x7F800001u,
                           0x7F80FFFFu, 0x7FBFFFFFu, 0x7FFFFFFFu, 0x7FA00000u}) {
    in.push_back(float_of(p));
    in.push_back(float_of(p | 0x80000000u));
  }
  for (int k = 0; k < 501; ++k) in.push_back(float_of(rng()));
  return in;
}

void check_all(const Split& split, Overflow overflow, std::span<const float> in, uint64_t first) {
  const Stored s = store(split, overflow, in, first);
  const std::vector<uint32_t> back = restored(split, s, in.size());
  std::vector<float> high(in.size());
  decode(split.high, s.high, high);
  EncodeStats stats;
  int wrong = 0;
  for (size_t i = 0; i < in.size() && wrong < 5; ++i) {
    const Expected e = reference(split, overflow, in[i], random_word(kKey, first + i));
    const bool right = same(float_of(back[i]), e.wide) && same(high[i], e.high) &&
                       side_of(split, s, i) == e.side && std::signbit(high[i]) == std::signbit(in[i]);
    wrong += right ? 0 : 1;
    EXPECT_TRUE(right) << format_name(split.high) << "+" << split.extra << (split.stochastic ? "sr" : "")
                       << fmt::format(
                              " of {:#010x} = {:a}: {:a} for {:a}, high {:a} for {:a}, side {:x} for {:x}",
                              bits_of(in[i]), in[i], float_of(back[i]), e.wide, high[i], e.high,
                              side_of(split, s, i), e.side);
    stats.merge({e.overflow, e.underflow, e.nan, e.nan ? 0 : std::fabs(in[i])});
  }
  EXPECT_EQ(s.stats, stats) << format_name(split.high) << "+" << split.extra;
  const size_t used = in.size() * split.side_bits();
  for (size_t bit = used; bit < s.side.size() * 32; ++bit) EXPECT_EQ(s.side[bit / 32] >> (bit % 32) & 1, 0u);
}

template <typename F>
void for_all_splits(const F& body) {
  for (const char* name : kHighFormats) {
    const FloatFormat high = parse_format(name);
    for (int extra = 0; extra <= std::min(16, 23 - high.man); ++extra) {
      if (high.emin() - high.man - extra < -149) continue;
      for (const bool stochastic : {false, true}) body(make_split(high, extra, stochastic));
    }
  }
}

TEST(Split, EqualsTheReferenceForEveryFormatAndWidth) {
  int splits = 0;
  for_all_splits([&](const Split& split) {
    const std::vector<float> in = hard_inputs(split);
    check_all(split, Overflow::saturate, in, 5);
    if (split.high.has_inf()) check_all(split, Overflow::infinity, in, (uint64_t{1} << 40) + 3);
    ++splits;
  });
  // Widths: bf16 17, fp16 14, the three 8-bit ones and ieee 17, fp(6,9,0) 15, fp(4,3,130) 11,
  // fp(7,0,0) 17.
  EXPECT_EQ(splits, 2 * (17 + 14 + 17 + 17 + 17 + 15 + (149 - 136 - 3 + 1) + 17 + 17));
}

TEST(Split, IsTheSameOnEveryUnitAndThreadCount) {
  const int threads = thread_count();
  for (const char* name : {"bf16", "e4m3", "fp16", "fp(4,3,130)"}) {
    for (const int extra : {0, 9}) {
      for (const bool stochastic : {false, true}) {
        const Split split = make_split(parse_format(name), extra, stochastic);
        std::vector<float> in = hard_inputs(split);
        std::mt19937 rng(11);
        while (in.size() < 100'003) in.push_back(float_of(rng()));
        use_simd("reference");
        set_thread_count(1);
        ExponentHistogram histogram;
        const Stored one = store(split, Overflow::saturate, in, 2, &histogram);
        const std::vector<uint32_t> back = restored(split, one, in.size());
        for (const std::string& unit : simd_names()) {
          use_simd(unit);
          for (const int t : {1, 2, 7}) {
            set_thread_count(t);
            ExponentHistogram h;
            const Stored other = store(split, Overflow::saturate, in, 2, &h);
            EXPECT_TRUE(one == other && h == histogram) << name << "+" << extra << " " << unit << " " << t;
            EXPECT_TRUE(restored(split, other, in.size()) == back) << name << "+" << extra << " " << unit;
          }
        }
      }
    }
  }
  use_simd("auto");
  set_thread_count(threads);
}

TEST(Split, Bf16With16BitsHoldsEveryFiniteNumber) {
  std::vector<float> in;
  std::mt19937 rng(1);
  for (const uint32_t p : {0u, 1u, 2u, 0x7FFFFFu, 0x800000u, 0x800001u, 0x3F800000u, 0x3F807FFFu, 0x3F808000u,
                           0x3F80FFFFu, 0x7F7F0000u, 0x7F7F8000u, 0x7F7FFFFFu}) {
    in.push_back(float_of(p));
    in.push_back(float_of(p | 0x80000000u));
  }
  while (in.size() < 300'001) {
    const uint32_t p = rng();
    if ((p & 0x7F800000u) != 0x7F800000u) in.push_back(float_of(p));
  }
  for (const bool stochastic : {false, true}) {
    const Split split = make_split(parse_format("bf16"), 16, stochastic);
    const Stored s = store(split, Overflow::infinity, in);
    EXPECT_TRUE(restored(split, s, in.size()) == patterns(in));
    EXPECT_EQ(s.stats.overflow + s.stats.underflow + s.stats.nan, 0u);
    std::vector<float> high(in.size());
    decode(split.high, s.high, high);
    EXPECT_TRUE(std::all_of(high.begin(), high.end(), [](float x) { return std::isfinite(x); }));
  }
}

TEST(Split, PacksByHand) {
  // bf16+4, truncated: 1 + k 2^-11 has high part 0x3F80 and extra bits k.
  std::vector<float> in;
  for (int k = 0; k < 9; ++k) in.push_back(1.0f + static_cast<float>(k + 1) * 0x1p-11f);
  const Stored s = store(make_split(parse_format("bf16"), 4, false), Overflow::saturate, in);
  EXPECT_EQ(s.side, (std::vector<uint32_t>{0x87654321u, 0x00000009u}));
  EXPECT_EQ(s.high[0], 0x80);  // little-endian
  EXPECT_EQ(s.high[1], 0x3F);
  // e5m2+11: 11 bits do not divide a word. 1 + k 2^-13 has high part 0x3C.
  in.clear();
  const uint32_t k[] = {0x7FF, 0x001, 0x555, 0x400};
  for (const uint32_t e : k) in.push_back(1.0f + static_cast<float>(e) * 0x1p-13f);
  const Stored t = store(make_split(parse_format("e5m2"), 11, false), Overflow::saturate, in);
  const uint64_t all = k[0] | uint64_t{k[1]} << 11 | uint64_t{k[2]} << 22 | uint64_t{k[3]} << 33;
  EXPECT_EQ(t.side, (std::vector<uint32_t>{static_cast<uint32_t>(all), static_cast<uint32_t>(all >> 32)}));
  EXPECT_EQ(t.high, std::vector<uint8_t>(4, 0x3C));
}

TEST(Split, TakesTheWordsItSays) {
  for_all_splits([](const Split& split) {
    for (size_t n = 0; n <= 70; ++n) {
      EXPECT_EQ(split_words(split, n), (n * split.side_bits() + 31) / 32);
      // Guards behind exactly what is needed.
      const std::vector<float> in(n, 1.3f);
      std::vector<uint8_t> high(n * split.high.bits() / 8 + 4, 0xEE);
      std::vector<uint32_t> side(split_words(split, n) + 2, 0xEEEEEEEE);
      split_encode(split, Overflow::saturate, kKey, in, high, side);
      EXPECT_TRUE(std::all_of(high.end() - 4, high.end(), [](uint8_t b) { return b == 0xEE; }));
      EXPECT_TRUE(side.end()[-1] == 0xEEEEEEEE && side.end()[-2] == 0xEEEEEEEE);
    }
    EXPECT_EQ(split_words(split, 32), static_cast<size_t>(split.side_bits()));
  });
}

TEST(Split, RefusesTooLittleRoomAndTooManyElements) {
  const Split split = make_split(parse_format("bf16"), 8, true);
  const std::vector<float> in(33);
  std::vector<uint8_t> high(66);
  std::vector<uint32_t> side(10);
  std::vector<float> out(33);
  const auto encode_into = [&](size_t h, size_t s, uint64_t first) {
    split_encode(split, Overflow::saturate, kKey, in, std::span(high).first(h), std::span(side).first(s),
                 first);
  };
  EXPECT_NO_THROW(encode_into(66, 10, 0));
  EXPECT_THROW(encode_into(65, 10, 0), Error);
  EXPECT_THROW(encode_into(66, 9, 0), Error);
  EXPECT_THROW(encode_into(66, 10, kMaxRandomElements - 32), Error);
  EXPECT_THROW(split_decode(split, std::span(high).first(65), side, out), Error);
  EXPECT_THROW(split_decode(split, high, std::span(side).first(9), out), Error);
}

TEST(Split, RefusesWhatCannotBe) {
  EXPECT_THROW(make_split(parse_format("bf16"), 17, false), Error);
  EXPECT_THROW(make_split(parse_format("bf16"), -1, false), Error);
  EXPECT_THROW(make_split(parse_format("fp16"), 14, false), Error);
  EXPECT_THROW(make_split(parse_format("tf32"), 4, false), Error);
  EXPECT_THROW(make_split(parse_format("fp32"), 0, false), Error);
  EXPECT_THROW(make_split(parse_format("fp(4,3,130)"), 11, false), Error);  // 2^-136-3-11 < 2^-149
  EXPECT_THROW(make_wide_spec(make_split(parse_format("e4m3"), 8, false), Overflow::infinity), Error);
}

TEST(Split, RoundsUpExactlyBelowTheThreshold) {
  for_all_splits([](const Split& split) {
    if (!split.stochastic || split.extra == 0) return;
    const CodecSpec wide = make_wide_spec(split, Overflow::saturate);
    const uint32_t one = (split.high.max_code() / 2) << split.extra;
    for (const uint32_t extra : {1u, (1u << split.extra) - 1, 1u << (split.extra - 1)}) {
      const uint32_t threshold = extra << (32 - split.extra);
      for (const uint32_t sign : {0u, 1u << wide.sign_shift}) {
        const uint32_t code = one | extra | sign;
        for (const uint32_t r : {0u, threshold - 1, threshold, 0xFFFFFFFFu}) {
          const SplitCode s = split_code(wide, split.extra, true, code, r);
          const uint32_t up = r < threshold ? 1 : 0;
          EXPECT_EQ(s.high, (code >> split.extra) + up);
          EXPECT_EQ(s.side, extra | up << split.extra);
          EXPECT_EQ(join_code(split.extra, s), code);
        }
        // The largest number: never up.
        const uint32_t top = split.high.max_code() << split.extra | extra | sign;
        EXPECT_EQ(split_code(wide, split.extra, true, top, 0).high, top >> split.extra);
      }
    }
  });
}

TEST(Split, RoundsUpAsOftenAsItShould) {
  const size_t n = size_t{1} << 20;
  for (const char* name : {"bf16", "e4m3", "e5m2", "fp(4,3,4)"}) {
    const Split split = make_split(parse_format(name), 8, true);
    for (const uint32_t extra : {1u, 64u, 128u, 255u}) {
      // A normal number and a subnormal one of the high format.
      const double coarse = std::ldexp(1.0, -split.high.man);
      for (const double base : {1.0, std::ldexp(coarse, split.high.emin())}) {
        const double spacing = base == 1.0 ? coarse : base;
        const std::vector<float> in(n, static_cast<float>(base + spacing * extra / 256));
        const Stored s = store(split, Overflow::saturate, in);
        double up = 0;
        for (size_t i = 0; i < n; ++i) up += side_of(split, s, i) >> 8;
        const double p = extra / 256.0, sigma = std::sqrt(p * (1 - p) * static_cast<double>(n));
        EXPECT_NEAR(up, p * static_cast<double>(n), 5 * sigma) << name << " " << extra << " at " << base;
      }
    }
  }
}

TEST(Split, KeepsANanWhosePayloadIsInTheLowBits) {
  for (const char* name : {"bf16", "fp16", "e5m2", "e4m3"}) {
    for (const bool stochastic : {false, true}) {
      const Split split = make_split(parse_format(name), 8, stochastic);
      for (uint32_t payload = 1; payload < 0x800000u; payload <<= 1) {
        const std::vector<float> in = {float_of(0x7F800000u | payload), float_of(0xFF800000u | payload)};
        const Stored s = store(split, Overflow::saturate, in);
        std::vector<float> high(2);
        decode(split.high, s.high, high);
        const std::vector<uint32_t> back = restored(split, s, 2);
        for (int i = 0; i < 2; ++i) {
          EXPECT_TRUE(std::isnan(high[i]) && std::isnan(float_of(back[i]))) << name << " " << payload;
          EXPECT_EQ(back[i] >> 31, static_cast<uint32_t>(i));
          EXPECT_EQ(side_of(split, s, i), 0u);
        }
      }
    }
  }
}

RC_GTEST_PROP(SplitProperty, RestoresTheNearestWideNumberFromAnyPartOfATensor, ()) {
  const FloatFormat high = parse_format(
      *rc::gen::elementOf(std::vector<std::string>(std::begin(kHighFormats), std::end(kHighFormats))));
  const int most = std::min({16, 23 - high.man, 149 + high.emin() - high.man});
  const Split split = make_split(high, *rc::gen::inRange(0, most + 1), *rc::gen::arbitrary<bool>());
  const auto bits = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 0xFFFFFFFFu));
  std::vector<float> in;
  for (const uint32_t b : bits) in.push_back(float_of(b * 2654435761u));
  check_all(split, Overflow::saturate, in, *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 49));
  RC_ASSERT(!testing::Test::HasFailure());
}

// A part that starts at a word of extra bits is what the whole has there, its random words
// included.
TEST(Split, PartsAreThoseOfTheWhole) {
  std::vector<float> in(5000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i % 97);
  for (const auto& [format, extra] : {std::pair{"bf16", 16}, {"bf16", 5}, {"fp16", 13}, {"e5m2", 7}}) {
    for (const bool stochastic : {false, true}) {
      const Split split = make_split(parse_format(format), extra, stochastic);
      const Stored whole = store(split, Overflow::saturate, in);
      const size_t bytes = static_cast<size_t>(split.high.bits()) / 8;
      for (const size_t first : {size_t{32}, size_t{1024}, size_t{4960}}) {
        const Stored part = store(split, Overflow::saturate, std::span(in).subspan(first), first);
        EXPECT_TRUE(std::equal(part.high.begin(), part.high.end(),
                               whole.high.begin() + static_cast<ptrdiff_t>(first * bytes)));
        EXPECT_TRUE(std::equal(part.side.begin(), part.side.end(),
                               whole.side.begin() + static_cast<ptrdiff_t>(split_words(split, first))));
      }
    }
  }
}

}  // namespace
}  // namespace ulp
