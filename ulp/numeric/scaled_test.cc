// Scaled storage against a reference in double, worked out from the words of scaled.h: the smallest
// power of two with which the block's largest number does not overflow, and one rounding of x on
// the element format's grid moved by it.
#include "ulp/numeric/scaled.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

constexpr RoundKey kKey = {.seed = 0x5eed5eed5eed, .step = 8, .tensor = 77, .micro_batch = 1};
constexpr Round kModes[] = {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic};
const char* const kElements[] = {"e4m3", "e5m2", "fp(4,3,0)", "fp(5,2,0)", "fp(4,3,0,ieee)",
                                 "e3m4", "e2m5", "e6m1",      "fp(7,0,0)"};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

struct Rounded {
  double magnitude;  // infinite for an overflow that is kept
  bool overflow;
};

// |x| on the element format's grid times 2^k.
Rounded round_moved(const FloatFormat& f, int k, const Rounding& rounding, double magnitude,
                    uint32_t random) {
  const double max = std::ldexp(static_cast<double>(largest(f)), k);
  const double over = rounding.overflow == Overflow::infinity ? kInfinity : max;
  if (std::isinf(magnitude)) return {over, true};
  if (magnitude == 0) return {0, false};
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(magnitude), f.emin() + k) - f.man);
  const double units = magnitude / spacing, below = std::floor(units), fraction = units - below;
  // With m = 0 both sides of a tie have an odd significand, except zero: to the larger.
  const bool odd = f.man == 0 ? below > 0 : std::fmod(below, 2) == 1;
  bool up = false;
  switch (rounding.mode) {
    case Round::nearest_even:
      up = fraction > 0.5 || (fraction == 0.5 && odd);
      break;
    case Round::nearest_away:
      up = fraction >= 0.5;
      break;
    case Round::toward_zero:
      break;
    case Round::stochastic:
      up = random < std::floor(fraction * 0x1p32);
      break;
  }
  const double rounded = (below + (up ? 1 : 0)) * spacing;
  return rounded > max ? Rounded{over, true} : Rounded{rounded, false};
}

int highest_exponent(const FloatFormat& f) { return 127 - f.emax(); }

// The smallest normal scale with which amax cannot overflow, found by trying them all; or the
// highest that decodes within fp32. The scale is a normal fp32 number, and the smallest code under
// it no less than fp32's smallest number.
int lowest_exponent(const FloatFormat& f) { return std::max(-126, -149 - std::ilogb(smallest_positive(f))); }

int reference_exponent(const FloatFormat& f, Round mode, double amax) {
  if (amax == 0) return 0;
  const Rounding saturating = {mode, Overflow::saturate, kKey};
  for (int k = lowest_exponent(f); k < highest_exponent(f); ++k) {
    if (!round_moved(f, k, saturating, amax, 0).overflow) return k;
  }
  return highest_exponent(f);
}

struct Stored {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> scales;
  EncodeStats stats;
  bool operator==(const Stored&) const = default;
};

Stored store(const Scaled& scaled, const Rounding& rounding, std::span<const float> in, uint64_t first = 0,
             ExponentHistogram* histogram = nullptr) {
  const size_t blocks = (in.size() + 255) / 256;
  Stored s{std::vector<uint8_t>(in.size() + 3, 0xAA), std::vector<uint32_t>(blocks + 1, 0xAAAAAAAA), {}};
  s.stats = scaled_encode(scaled, rounding, in, s.codes, s.scales, first, histogram);
  EXPECT_TRUE(s.scales.back() == 0xAAAAAAAA && s.codes[in.size()] == 0xAA) << "wrote past the end";
  s.codes.resize(in.size());
  s.scales.resize(blocks);
  return s;
}

std::vector<float> restored(const Scaled& scaled, const Stored& s) {
  std::vector<float> out(s.codes.size(), -1.0f);
  scaled_decode(scaled, s.codes, s.scales, out);
  return out;
}

bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

void check_all(const FloatFormat& f, const Rounding& rounding, std::span<const float> in, uint64_t first) {
  const Scaled scaled = make_scaled(f);
  const Stored s = store(scaled, rounding, in, first);
  const std::vector<float> out = restored(scaled, s);
  EncodeStats stats;
  int wrong = 0;
  for (size_t at = 0; at < in.size(); at += 256) {
    const size_t end = std::min(in.size(), at + 256);
    double amax = 0;
    for (size_t i = at; i < end; ++i) {
      if (std::isfinite(in[i])) amax = std::max<double>(amax, std::fabs(in[i]));
    }
    const int k = reference_exponent(f, rounding.mode, amax);
    ASSERT_EQ(float_of(s.scales[at / 256]), std::ldexp(1.0, k))
        << format_name(f) << " " << round_name(rounding.mode) << fmt::format(" amax {:a}", amax);
    for (size_t i = at; i < end && wrong < 5; ++i) {
      const double magnitude = std::fabs(static_cast<double>(in[i]));
      Rounded e{f.has_nan() ? NAN : std::ldexp(static_cast<double>(largest(f)), k), false};
      const bool nan = std::isnan(in[i]);
      if (!nan) e = round_moved(f, k, rounding, magnitude, random_word(kKey, first + i));
      const bool right = same(out[i], std::copysign(e.magnitude, in[i]));
      wrong += right ? 0 : 1;
      EXPECT_TRUE(right) << format_name(f) << " " << round_name(rounding.mode)
                         << fmt::format(" {:a} with scale 2^{}: {:a} for {:a}", in[i], k, out[i],
                                        e.magnitude);
      const bool underflow = !nan && e.magnitude == 0 && magnitude != 0;
      stats.merge({e.overflow, underflow, nan, nan ? 0 : std::fabs(in[i])});
      // Only fp32's own edge keeps a finite number from its scale.
      EXPECT_TRUE(!e.overflow || std::isinf(in[i]) || k == highest_exponent(f));
    }
  }
  EXPECT_TRUE(s.stats == stats)
      << format_name(f) << " " << round_name(rounding.mode)
      << fmt::format(": overflow {} for {}, underflow {} for {}, nan {} for {}, amax {} for {}",
                     s.stats.overflow, stats.overflow, s.stats.underflow, stats.underflow, s.stats.nan,
                     stats.nan, s.stats.amax, stats.amax);
}

std::vector<Overflow> overflows(const FloatFormat& f) {
  if (f.has_inf()) return {Overflow::saturate, Overflow::infinity};
  return {Overflow::saturate};
}

TEST(Scaled, FindsTheScaleOfEveryExponent) {
  // The significands around the largest number of every format: what fits, what rounds down, what
  // does not.
  for (const char* name : kElements) {
    const FloatFormat f = parse_format(name);
    const CodecSpec spec = make_spec(f, Overflow::saturate);
    const double top = largest(f), half = std::ldexp(0.5, f.emax() - f.man);
    for (const Round mode : kModes) {
      for (int e = -149; e <= 127; ++e) {
        for (const double value :
             {1.0, 1.25, 1.999, std::ldexp(top, -f.emax()), std::ldexp(top + half, -f.emax()),
              std::ldexp(top + 2 * half, -f.emax())}) {
          const float x = static_cast<float>(std::ldexp(value, e));
          for (const float amax : {x, std::nextafter(x, 0.0f), std::nextafter(x, INFINITY)}) {
            if (!std::isfinite(amax)) continue;
            ASSERT_EQ(scale_exponent(spec, mode, bits_of(amax)), reference_exponent(f, mode, amax))
                << name << " " << round_name(mode) << fmt::format(" {:a}", amax);
          }
        }
      }
      for (const float amax : {FLT_MAX, FLT_MIN, std::nextafter(FLT_MIN, 0.0f), 0x1p-149f, 0.0f}) {
        ASSERT_EQ(scale_exponent(spec, mode, bits_of(amax)), reference_exponent(f, mode, amax)) << name;
      }
    }
  }
}

// One block: its largest number, and others down to where nothing is left of them.
std::vector<float> block_below(float amax, std::mt19937& rng, size_t n) {
  std::vector<float> in = {amax};
  while (in.size() < n) {
    const float x =
        std::ldexp(amax, -static_cast<int>(rng() % 40)) * (static_cast<float>(rng() >> 8) * 0x1p-24f);
    in.push_back(rng() % 2 ? x : -x);
  }
  std::shuffle(in.begin(), in.end(), rng);
  return in;
}

TEST(Scaled, RoundsOnceWhateverTheScale) {
  std::mt19937 rng(3);
  for (const char* name : kElements) {
    const FloatFormat f = parse_format(name);
    for (const Round mode : kModes) {
      for (const Overflow overflow : overflows(f)) {
        std::vector<float> in;
        for (int e = -149; e <= 127; e += 3) {
          const float amax = std::ldexp(1 + static_cast<float>(rng() >> 9) * 0x1p-23f, e);
          const std::vector<float> block = block_below(amax, rng, 256);
          in.insert(in.end(), block.begin(), block.end());
        }
        in.resize(in.size() - 57);
        check_all(f, {mode, overflow, kKey}, in, 512);
      }
    }
  }
}

TEST(Scaled, RoundsTiesOfTheMovedGrid) {
  // All midpoints between codes, in a block whose scale is not 1.
  for (const char* name : kElements) {
    const FloatFormat f = parse_format(name);
    std::vector<float> in = {std::ldexp(largest(f), 7)};
    for (int unit = 0; unit <= 2 << f.man; ++unit) {
      for (const int e : {f.emin(), f.emin() + 1, 0, f.emax() - 2}) {
        const float x = std::ldexp(static_cast<float>(unit) + 0.5f, e - f.man + 7);
        if (in.size() % 256 == 0) in.push_back(in[0]);
        in.push_back(std::min(x, in[0]));
      }
    }
    for (const Round mode : kModes) check_all(f, {mode, Overflow::saturate, kKey}, in, 0);
  }
}

TEST(Scaled, KeepsSpecialsApart) {
  const float nan = NAN, inf = INFINITY;
  for (const char* name : kElements) {
    const FloatFormat f = parse_format(name);
    for (const Round mode : kModes) {
      for (const Overflow overflow : overflows(f)) {
        const Rounding how = {mode, overflow, kKey};
        check_all(f, how, std::vector<float>{inf, -inf, nan, -nan, 3.0f, -0.0f, 0.0f, 0x1p-140f}, 0);
        check_all(f, how, std::vector<float>{inf, nan, -inf}, 256);    // nothing finite: scale 1
        check_all(f, how, std::vector<float>{0.0f, -0.0f, nan}, 256);  // nothing but zeros: scale 1
        check_all(f, how, std::vector<float>{float_of(0x7F800001u), 1.0f}, 0);
        check_all(f, how, std::vector<float>{FLT_MAX, -FLT_MAX, 1.0f, FLT_MIN}, 0);
        check_all(f, how, std::vector<float>{0x1p-149f, -0x1p-149f, 0x1p-126f}, 0);
        check_all(f, how, std::vector<float>{}, 0);
      }
    }
  }
}

TEST(Scaled, CountsAnUnderflowThatTheScaleAloneCauses) {
  // 2^-149 over a scale of 2^119 is zero in fp32 already, before any code: still a number written
  // as zero.
  const Scaled scaled = make_scaled(parse_format("e4m3"));
  const std::vector<float> in = {FLT_MAX, 0x1p-149f, -0x1p-149f};
  const Stored s = store(scaled, {}, in);
  EXPECT_EQ(s.stats.underflow, 2u);
  EXPECT_TRUE(same(restored(scaled, s)[2], -0.0));
}

TEST(Scaled, CutsBlocksAt256) {
  const Scaled scaled = make_scaled(parse_format("e4m3"));
  for (const size_t n : {size_t{1}, size_t{255}, size_t{256}, size_t{257}, size_t{4096}, size_t{4097}}) {
    std::vector<float> in(n, 1.0f);
    if (n > 256) in[255] = 1000.0f, in[256] = 0x1p-20f;
    const Stored s = store(scaled, {}, in);
    EXPECT_EQ(s.scales.size(), (n + 255) / 256);
    // 1 = 2^8 * 2^-8; 1000 rounds to 1024 = 256 * 4, but 500 of scale 2 passes 448.
    EXPECT_EQ(float_of(s.scales[0]), n > 256 ? 4.0f : 0x1p-8f);
    EXPECT_TRUE(n != 257 || float_of(s.scales[1]) == 0x1p-28f);
    check_all(scaled.element, {}, in, 256);
  }
}

TEST(Scaled, IsTheSameOnEveryUnitAndThreadCount) {
  const int threads = thread_count();
  std::mt19937 rng(5);
  std::vector<float> in;
  while (in.size() < 140'000) {
    const std::vector<float> block =
        block_below(std::ldexp(1.7f, static_cast<int>(rng() % 270) - 143), rng, 256);
    in.insert(in.end(), block.begin(), block.end());
  }
  in.resize(in.size() - 101);
  for (const float x : {NAN, INFINITY, -INFINITY, 0.0f}) in[rng() % in.size()] = x;
  for (const char* name : {"e4m3", "e5m2", "fp(7,0,0)"}) {
    const Scaled scaled = make_scaled(parse_format(name));
    for (const Round mode : kModes) {
      const Rounding how = {mode, Overflow::saturate, kKey};
      use_simd("reference");
      set_thread_count(1);
      ExponentHistogram histogram;
      const Stored one = store(scaled, how, in, 1024, &histogram);
      const std::vector<float> back = restored(scaled, one);
      for (const std::string& unit : simd_names()) {
        use_simd(unit);
        for (const int t : {1, 2, 7}) {
          set_thread_count(t);
          ExponentHistogram h;
          const Stored other = store(scaled, how, in, 1024, &h);
          EXPECT_TRUE(one == other && h == histogram) << name << " " << unit << " " << t;
          const std::vector<float> again = restored(scaled, other);
          EXPECT_EQ(std::memcmp(again.data(), back.data(), back.size() * sizeof(float)), 0) << unit;
        }
      }
    }
  }
  use_simd("auto");
  set_thread_count(threads);
}

TEST(Scaled, PartsOfATensorAreTheWhole) {
  std::mt19937 rng(9);
  const std::vector<float> in = block_below(100.0f, rng, 1000);
  const Scaled scaled = make_scaled(parse_format("e5m2"));
  const Rounding how = {Round::stochastic, Overflow::saturate, kKey};
  const Stored whole = store(scaled, how, in);
  const Stored part = store(scaled, how, std::span(in).subspan(512), 512);
  EXPECT_TRUE(std::equal(part.codes.begin(), part.codes.end(), whole.codes.begin() + 512));
  EXPECT_TRUE(std::equal(part.scales.begin(), part.scales.end(), whole.scales.begin() + 2));
}

TEST(Scaled, Refuses) {
  for (const char* name : {"fp16", "bf16", "fp(4,3,4)", "fp(3,2,0)", "fp(5,2,-1)"}) {
    EXPECT_THROW(make_scaled(parse_format(name)), Error) << name;
  }
  const Scaled scaled = make_scaled(parse_format("e4m3"));
  const std::vector<float> in(257);
  std::vector<float> out(257);
  std::vector<uint8_t> codes(257);
  std::vector<uint32_t> scales(2);
  EXPECT_NO_THROW(scaled_encode(scaled, {}, in, codes, scales));
  EXPECT_THROW(scaled_encode(scaled, {}, in, std::span(codes).first(256), scales), Error);
  EXPECT_THROW(scaled_encode(scaled, {}, in, codes, std::span(scales).first(1)), Error);
  EXPECT_THROW(scaled_encode(scaled, {}, in, codes, scales, 128), Error);
  EXPECT_THROW(scaled_encode(scaled, {}, in, codes, scales, kMaxRandomElements), Error);
  EXPECT_THROW(scaled_encode(scaled, {Round::nearest_even, Overflow::infinity, {}}, in, codes, scales),
               Error);
  EXPECT_THROW(scaled_decode(scaled, codes, std::span(scales).first(1), out), Error);
  EXPECT_THROW(scaled_decode(scaled, std::span(codes).first(256), scales, out), Error);
}

RC_GTEST_PROP(ScaledProperty, EqualsTheReference, ()) {
  const FloatFormat f =
      parse_format(*rc::gen::elementOf(std::vector<std::string>(std::begin(kElements), std::end(kElements))));
  const Round mode = *rc::gen::elementOf(std::vector<Round>(std::begin(kModes), std::end(kModes)));
  std::mt19937 rng(*rc::gen::arbitrary<uint32_t>());
  const int exponent = *rc::gen::inRange(-149, 128);
  const size_t n = *rc::gen::inRange<size_t>(1, 600);
  check_all(f, {mode, Overflow::saturate, kKey}, block_below(std::ldexp(1.3f, exponent), rng, n), 256);
  RC_ASSERT(!testing::Test::HasFailure());
}

TEST(Scaled, KeepsTheBitsOfANan) {
  const Scaled scaled = make_scaled(parse_format("e5m2"));
  const std::vector<float> in = {std::bit_cast<float>(0x7FA00000u), std::bit_cast<float>(0xFFE00000u),
                                 3000.0f};
  const Stored s = store(scaled, {}, in);
  EXPECT_EQ(s.codes[0], 0x7D);
  EXPECT_EQ(s.codes[1], 0xFF);
  EXPECT_EQ(s.stats.nan, 2u);
}

TEST(Scaled, RefusesDamagedScales) {
  const Scaled scaled = make_scaled(parse_format("e4m3"));
  const std::vector<uint8_t> codes(300, 1);
  std::vector<float> out(300);
  for (const uint32_t damaged : {0u, 0x3FC00000u, 0xBF800000u, 0x7F800000u, 0x7FC00000u, 0x7E800000u}) {
    const std::vector<uint32_t> scales = {0x3F800000u, damaged};
    EXPECT_THROW(scaled_decode(scaled, codes, scales, out), Error) << damaged;
  }
}

// Only zero is written as zero; what is too small for the block is the smallest code, and no
// underflow.
TEST(Scaled, NonzeroKeepsWhatIsNotZero) {
  const Scaled plain = make_scaled(parse_format("e5m2")), nonzero = make_scaled(parse_format("e5m2"), true);
  std::vector<float> in(300, 0.0f);
  in[0] = 1.0f;
  in[1] = 0x1p-40f;
  in[2] = -0x1p-140f;
  in[3] = -0.0f;
  in[4] = 0x1p-20f;
  in[299] = 0x1p-149f;  // alone in its block, and still below what any scale reaches
  const Stored with = store(nonzero, {}, in), without = store(plain, {}, in);
  EXPECT_EQ(with.scales, without.scales);
  EXPECT_EQ(without.stats.underflow, 3u);
  EXPECT_EQ(with.stats.underflow, 0u);
  EXPECT_EQ(with.stats.amax, 1.0f);
  EXPECT_EQ(with.codes[1], 0x01);
  EXPECT_EQ(with.codes[2], 0x81);
  EXPECT_EQ(with.codes[3], 0x80);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ((with.codes[i] & 0x7F) == 0, in[i] == 0) << i;
    if (i != 1 && i != 2 && i != 299) {
      EXPECT_EQ(with.codes[i], without.codes[i]) << i;
    }
  }
  // Also where the word would have rounded it down.
  const Stored random = store(nonzero, {Round::stochastic, Overflow::saturate, {1, 2, 3, 0}}, in);
  EXPECT_EQ(random.stats.underflow, 0u);
  EXPECT_EQ(random.codes[1], 0x01);
}

// A part that starts at a block is what the whole has there, its random words included.
TEST(Scaled, PartsAreThoseOfTheWhole) {
  std::vector<float> in(2100);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i % 40) - 30);
  for (const bool nonzero : {false, true}) {
    const Scaled scaled = make_scaled(parse_format("e4m3"), nonzero);
    for (const Round mode : {Round::nearest_even, Round::stochastic}) {
      const Rounding rounding{mode, Overflow::saturate, {1, 2, 3, 0}};
      const Stored whole = store(scaled, rounding, in);
      for (const size_t first : {size_t{256}, size_t{1024}, size_t{2048}}) {
        const Stored part = store(scaled, rounding, std::span(in).subspan(first), first);
        EXPECT_TRUE(std::equal(part.codes.begin(), part.codes.end(),
                               whole.codes.begin() + static_cast<ptrdiff_t>(first)));
        EXPECT_TRUE(std::equal(part.scales.begin(), part.scales.end(),
                               whole.scales.begin() + static_cast<ptrdiff_t>(first / 256)));
      }
      EXPECT_THROW(store(scaled, rounding, in, 128), Error);
    }
  }
}

}  // namespace
}  // namespace ulp
