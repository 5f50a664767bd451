// Properties of formats and rounding that hold for every valid format, tried on random ones: up to
// 23 mantissa bits, where the exhaustive test cannot go.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <climits>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/oracle.h"
#include "ulp/base/error.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

constexpr Round kModes[] = {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic};
constexpr Round kDeterministic[] = {Round::nearest_even, Round::nearest_away, Round::toward_zero};
constexpr Specials kSpecials[] = {Specials::none, Specials::ieee, Specials::fn};
// RapidCheck tries a property a hundred times; each time it gets this many formats, with so many
// inputs.
constexpr int kCases = 10, kInputs = 300;

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

struct Case {
  FloatFormat format;
  std::vector<uint32_t> patterns;  // fp32 bit patterns
};

void showValue(const Case& c, std::ostream& os) {  // NOLINT: the name that RapidCheck looks for
  os << format_name(c.format);
}

rc::Gen<FloatFormat> any_format() {
  return rc::gen::exec([] {
    const int exp = *rc::gen::inRange(2, 9);
    const Specials specials = *rc::gen::elementOf(std::vector(std::begin(kSpecials), std::end(kSpecials)));
    // fp(8,23,b) is too wide for fp32 with every b, unless it gives up its top exponent.
    const int widest = exp == 8 && specials != Specials::ieee ? 22 : 23;
    const int man = *rc::gen::inRange(0, widest + 1);
    std::vector<int> valid;
    for (int b = -300; b <= 300; ++b) {
      if (oracle::is_valid(exp, man, b, specials)) valid.push_back(b);
    }
    return make_format(exp, man, *rc::gen::elementOf(valid), specials);
  });
}

// From where a case takes its inputs.
struct Window {
  int lowest, highest;  // exponents
  bool wild;            // some patterns are anything at all
};

// Either all around the format's range, with any pattern at all among them, or a few binades inside
// it: plain data, for which a bulk codec may have a path of its own.
Window any_window(const FloatFormat& format) {
  const int bottom = std::max(std::ilogb(oracle::smallest_number(format)) - 3, -149);
  const int top = std::min(std::ilogb(oracle::largest_number(format)) + 1, 127);
  if (*rc::gen::inRange(0, 2) == 0) return {bottom, top, true};
  const int lowest = *rc::gen::inRange(bottom, top + 1);
  return {lowest, *rc::gen::inRange(lowest, std::min(lowest + 5, top + 1)), false};
}

// fp32 patterns where this format decides: its numbers, its midpoints, and next to both.
rc::Gen<uint32_t> any_pattern(const FloatFormat& format, const Window& window) {
  return rc::gen::exec([format, window] {
    const uint32_t sign = *rc::gen::element(0u, 0x80000000u);
    if (window.wild && *rc::gen::inRange(0, 4) == 0) return *rc::gen::arbitrary<uint32_t>() ^ sign;
    const int exponent = *rc::gen::inRange(window.lowest, window.highest + 1);
    const double x = std::ldexp(1 + *rc::gen::inRange(0, 1 << 23) * 0x1p-23, exponent);
    const oracle::Bracket around = oracle::bracket(format, x);
    const double mark = *rc::gen::element(x, around.below, (around.below + around.above) / 2);
    const uint32_t pattern = bits_of(static_cast<float>(mark));
    return (pattern + *rc::gen::element(0u, 0u, 1u, pattern == 0 ? 0u : ~0u)) | sign;
  });
}

// RapidCheck starts with small numbers and lets them grow: good for containers, wrong for bit
// patterns.
template <typename T>
rc::Gen<T> full_range(rc::Gen<T> gen) {
  return rc::gen::resize(rc::kNominalSize, std::move(gen));
}

uint32_t any_word() { return *rc::gen::noShrink(full_range(rc::gen::arbitrary<uint32_t>())); }

std::vector<Case> any_cases() {
  const rc::Gen<Case> one = rc::gen::exec([] {
    Case c{*any_format(), {}};
    const rc::Gen<uint32_t> pattern = any_pattern(c.format, any_window(c.format));
    c.patterns = *rc::gen::container<std::vector<uint32_t>>(kInputs, pattern);
    return c;
  });
  // A failure names its format and input, so nothing is gained by shrinking thousands of inputs.
  return *rc::gen::noShrink(rc::gen::container<std::vector<Case>>(kCases, full_range(one)));
}

Overflow any_overflow(const FloatFormat& format) {
  if (!oracle::has_infinity(format)) return Overflow::saturate;
  return *rc::gen::element(Overflow::saturate, Overflow::infinity);
}

// One number through the codec and back.
float written(const CodecSpec& spec, Round mode, float x, uint32_t random = 0) {
  return std::bit_cast<float>(decode_scalar(spec, encode_scalar(spec, mode, bits_of(x), random).code));
}

// Fails the property, saying on what.
void expect(bool right, const Case& c, Round mode, float x, std::string_view what) {
  if (right) return;
  RC_FAIL(fmt::format("{}: {} of {:#010x} = {:a}, mode {}", what, format_name(c.format), bits_of(x), x,
                      round_name(mode)));
}

RC_GTEST_PROP(Rounding, EqualsTheOracleInAllModes, ()) {
  for (const Case& c : any_cases()) {
    const Overflow overflow = any_overflow(c.format);
    const CodecSpec spec = make_spec(c.format, overflow);
    for (const Round mode : kModes) {
      const uint32_t random = any_word();
      for (const uint32_t pattern : c.patterns) {
        const float x = std::bit_cast<float>(pattern);
        const oracle::Rounded expected = oracle::round(c.format, mode, overflow, x, random);
        const Encoded got = encode_scalar(spec, mode, pattern, random);
        expect(got.code < oracle::code_count(c.format), c, mode, x, "the code is too wide");
        const double value = oracle::code_value(c.format, got.code);
        expect(oracle::same(value, expected.value), c, mode, x, "the code is another number's");
        expect((got.code >= oracle::code_count(c.format) / 2) == std::signbit(x), c, mode, x, "the sign");
        expect(got.event == expected.event, c, mode, x, "the event");
        const float back = std::bit_cast<float>(decode_scalar(spec, got.code));
        expect(oracle::same(back, expected.value), c, mode, x, "decoded, it is another number");
      }
    }
  }
}

// Random words at the border: one below the threshold goes up, the threshold itself does not.
RC_GTEST_PROP(Rounding, StochasticTurnsAtTheExactWord, ()) {
  for (const Case& c : any_cases()) {
    const CodecSpec spec = make_spec(c.format, Overflow::saturate);
    for (const uint32_t pattern : c.patterns) {
      const float x = std::fabs(std::bit_cast<float>(pattern));
      if (!std::isfinite(x) || x == 0) continue;
      const oracle::Bracket around = oracle::bracket(c.format, x);
      if (around.above > oracle::largest_number(c.format)) continue;
      const uint32_t threshold = static_cast<uint32_t>(around.threshold);
      expect(written(spec, Round::stochastic, x, threshold) == around.below, c, Round::stochastic, x,
             "threshold");
      expect(written(spec, Round::stochastic, x, ~0u) == around.below, c, Round::stochastic, x, "last word");
      if (threshold == 0) continue;
      expect(written(spec, Round::stochastic, x, threshold - 1) == around.above, c, Round::stochastic, x,
             "threshold - 1");
      expect(written(spec, Round::stochastic, x, 0) == around.above, c, Round::stochastic, x, "word 0");
    }
  }
}

// Also in stochastic mode, where two numbers share a word.
RC_GTEST_PROP(Rounding, IsMonotone, ()) {
  for (const Case& c : any_cases()) {
    const CodecSpec spec = make_spec(c.format, any_overflow(c.format));
    std::vector<float> sorted;
    for (const uint32_t pattern : c.patterns) {
      const float x = std::bit_cast<float>(pattern);
      if (!std::isnan(x)) sorted.push_back(x);
    }
    std::sort(sorted.begin(), sorted.end());
    for (const Round mode : kModes) {
      const uint32_t random = any_word();
      for (size_t i = 1; i < sorted.size(); ++i) {
        const float before = written(spec, mode, sorted[i - 1], random);
        expect(before <= written(spec, mode, sorted[i], random), c, mode, sorted[i],
               "less than the one before");
      }
    }
  }
}

RC_GTEST_PROP(Rounding, IsIdempotent, ()) {
  for (const Case& c : any_cases()) {
    const Overflow overflow = any_overflow(c.format);
    const CodecSpec spec = make_spec(c.format, overflow);
    const uint32_t random = any_word();
    for (const Round mode : kModes) {
      for (const uint32_t pattern : c.patterns) {
        const Encoded once = encode_scalar(spec, mode, pattern, random);
        const uint32_t value = decode_scalar(spec, once.code);
        for (const Round again : kModes) {
          const bool stays = encode_scalar(spec, again, value, ~random).code == once.code;
          expect(stays, c, again, std::bit_cast<float>(value), "does not come back");
        }
      }
    }
  }
}

RC_GTEST_PROP(Rounding, IsOddSymmetric, ()) {
  for (const Case& c : any_cases()) {
    const CodecSpec spec = make_spec(c.format, any_overflow(c.format));
    const uint32_t sign_code = static_cast<uint32_t>(oracle::code_count(c.format) / 2);
    for (const Round mode : kDeterministic) {
      for (const uint32_t pattern : c.patterns) {
        const Encoded one = encode_scalar(spec, mode, pattern, 0);
        const Encoded other = encode_scalar(spec, mode, pattern ^ 0x80000000u, 0);
        const float x = std::bit_cast<float>(pattern);
        expect(one.code == (other.code ^ sign_code), c, mode, x, "differs from the negative's");
        expect(one.event == other.event, c, mode, x, "another event than the negative's");
      }
    }
  }
}

RC_GTEST_PROP(Rounding, NearestErrsByAtMostHalfTheSpacing, ()) {
  for (const Case& c : any_cases()) {
    const CodecSpec spec = make_spec(c.format, Overflow::saturate);
    for (const Round mode : {Round::nearest_even, Round::nearest_away}) {
      for (const uint32_t pattern : c.patterns) {
        const float x = std::bit_cast<float>(pattern);
        if (!std::isfinite(x) || x == 0) continue;
        if (encode_scalar(spec, mode, pattern, 0).event == RangeEvent::overflow) continue;
        const oracle::Bracket around = oracle::bracket(c.format, std::fabs(x));
        const double error = std::fabs(static_cast<double>(written(spec, mode, x)) - x);
        expect(error <= (around.above - around.below) / 2, c, mode, x, "too far away");
      }
    }
  }
}

RC_GTEST_PROP(Rounding, TowardZeroNeverGrows, ()) {
  for (const Case& c : any_cases()) {
    const CodecSpec spec = make_spec(c.format, Overflow::saturate);
    for (const uint32_t pattern : c.patterns) {
      const float x = std::bit_cast<float>(pattern);
      if (std::isnan(x)) continue;
      const float result = written(spec, Round::toward_zero, x);
      expect(std::fabs(result) <= std::fabs(x), c, Round::toward_zero, x, "grew");
      expect(std::signbit(result) == std::signbit(x), c, Round::toward_zero, x, "changed its sign");
    }
  }
}

// The best vector unit again, also when a property fails half way.
struct RestoreSimd {
  ~RestoreSimd() { use_simd("auto"); }
};

// The bulk codec on formats that have no table: wide ones too, all modes, with the real random
// words, under every vector unit.
void check_bulk(const Case& c, const Rounding& how, uint64_t first) {
  const RestoreSimd restore;
  std::vector<float> inputs;
  for (const uint32_t pattern : c.patterns) inputs.push_back(std::bit_cast<float>(pattern));
  const std::vector<uint32_t> words = oracle::random_words(how.key, first, inputs.size());
  const oracle::Rounder rounder(c.format, how.mode, how.overflow);
  for (const std::string& simd : simd_names()) {
    use_simd(simd);
    std::vector<uint8_t> bytes(packed_bytes(c.format.bits(), inputs.size()));
    ExponentHistogram histogram;
    const EncodeStats stats = encode(c.format, how, inputs, bytes, first, &histogram);
    std::vector<float> values(inputs.size());
    decode(c.format, bytes, values);
    oracle::Tally tally;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const oracle::Rounded expected = rounder.round(inputs[i], words[i]);
      expect(oracle::same(values[i], expected.value), c, how.mode, inputs[i], simd);
      tally.add(inputs[i], expected.event);
    }
    RC_ASSERT(stats == tally.stats());
    RC_ASSERT(histogram == oracle::histogram_of(inputs));
  }
}

RC_GTEST_PROP(Bulk, EqualsTheOracleUnderEveryVectorUnit, ()) {
  for (const Case& c : any_cases()) {
    const RoundKey key = {.seed = uint64_t{any_word()} << 32 | any_word(),
                          .step = any_word(),
                          .tensor = any_word(),
                          .micro_batch = static_cast<uint16_t>(any_word())};
    const uint64_t first = *full_range(rc::gen::inRange<uint64_t>(0, kMaxRandomElements - kInputs));
    for (const Round mode : kModes) check_bulk(c, {mode, any_overflow(c.format), key}, first);
  }
}

// ---- Formats: few enough to try them all ----

TEST(Formats, AreAcceptedExactlyWhereTheContractAllows) {
  int valid = 0;
  for (int exp = -1; exp <= 10; ++exp) {
    for (int man = -2; man <= 26; ++man) {
      for (const Specials specials : kSpecials) {
        for (int b = -300; b <= 300; ++b) {
          const std::string text = fmt::format("fp({},{},{},{})", exp, man, b, specials_name(specials));
          if (!oracle::is_valid(exp, man, b, specials)) {
            ASSERT_THROW(make_format(exp, man, b, specials), Error) << text;
            continue;
          }
          ++valid;
          FloatFormat format{};
          ASSERT_NO_THROW(format = make_format(exp, man, b, specials)) << text;
          ASSERT_EQ(format.exp, exp) << text;
          ASSERT_EQ(format.man, man) << text;
          ASSERT_EQ(format.bias, (1 << (exp - 1)) - 1 + b) << text;
          ASSERT_EQ(format.specials, specials) << text;
          ASSERT_EQ(format.extra_bias(), b) << text;
          ASSERT_EQ(format.has_inf(), oracle::has_infinity(format)) << text;
          ASSERT_EQ(format.has_nan(), oracle::has_nan(format)) << text;
          ASSERT_EQ(largest(format), oracle::largest_number(format)) << text;
          ASSERT_EQ(format.emax(), std::ilogb(oracle::largest_number(format))) << text;
          ASSERT_EQ(oracle::code_value(format, format.max_code()), oracle::largest_number(format)) << text;
          ASSERT_EQ(smallest_positive(format), oracle::smallest_number(format)) << text;
          ASSERT_EQ(smallest_normal(format), std::ldexp(1.0, format.emin())) << text;
          // The rule's purpose: both ends are fp32 numbers.
          ASSERT_TRUE(std::isfinite(largest(format))) << text;
          ASSERT_EQ(parse_format(format_name(format)), format)
              << text << " is called " << format_name(format);
        }
      }
    }
  }
  EXPECT_GT(valid, 10'000);
}

TEST(Formats, WithAbsurdNumbersAreRefused) {
  for (const int absurd : {INT_MIN, INT_MIN + 1, -65536, -32768, 32767, 65536, INT_MAX - 1, INT_MAX}) {
    EXPECT_THROW(make_format(4, 3, absurd, Specials::none), Error) << absurd;
    EXPECT_THROW(make_format(4, absurd, 0, Specials::none), Error) << absurd;
    EXPECT_THROW(make_format(absurd, 3, 0, Specials::none), Error) << absurd;
    EXPECT_THROW(parse_format(fmt::format("fp(4,3,{})", absurd)), Error) << absurd;
  }
}

TEST(Formats, NamesMeanWhatTheContractSays) {
  for (int exp = 2; exp <= 8; ++exp) {
    for (int man = 0; man <= 23; ++man) {
      const std::string name = fmt::format("e{}m{}", exp, man);
      const Specials specials = name == "e4m3"                                       ? Specials::fn
                                : name == "e3m2" || name == "e2m3" || name == "e2m1" ? Specials::none
                                                                                     : Specials::ieee;
      ASSERT_TRUE(oracle::is_valid(exp, man, 0, specials)) << name;
      EXPECT_EQ(parse_format(name), make_format(exp, man, 0, specials)) << name;
    }
  }
  EXPECT_EQ(parse_format("fp(4,3,4)"), make_format(4, 3, 4, Specials::none));
  EXPECT_EQ(parse_format("fp(5,2,-1)"), make_format(5, 2, -1, Specials::none));
  EXPECT_EQ(parse_format("fp32"), make_format(8, 23, 0, Specials::ieee));
  EXPECT_EQ(parse_format("tf32"), make_format(8, 10, 0, Specials::ieee));
  EXPECT_EQ(parse_format("fp16"), make_format(5, 10, 0, Specials::ieee));
  EXPECT_EQ(parse_format("bf16"), make_format(8, 7, 0, Specials::ieee));
  for (const Preset& preset : presets()) EXPECT_EQ(parse_format(preset.name), preset.format) << preset.name;
}

// Text near a name either names a valid format, which then keeps its meaning under its own name, or
// is refused with Error: no crash, no other exception.
RC_GTEST_PROP(Formats, TextIsParsedOrRefused, ()) {
  const std::vector<std::string> pieces = {"fp", "e",  "m",   "(", ")",    ",",  "-", "+", " ",   "4",
                                           "3",  "16", "999", "8", "ieee", "fn", "b", "",  "e4m3"};
  for (int trial = 0; trial < 50; ++trial) {
    std::string text;
    for (const std::string& piece :
         *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(pieces))) {
      text += piece;
    }
    try {
      const FloatFormat format = parse_format(text);
      RC_ASSERT(oracle::is_valid(format.exp, format.man, format.extra_bias(), format.specials));
      RC_ASSERT(parse_format(format_name(format)) == format);
    } catch (const Error&) {
      continue;
    }
  }
}

// ---- The oracle itself, on cases worked out by hand ----

double nearest(const FloatFormat& format, float x) {
  return oracle::round(format, Round::nearest_even, Overflow::saturate, x).value;
}

RangeEvent event_of(const FloatFormat& format, Round mode, float x) {
  return oracle::round(format, mode, Overflow::saturate, x).event;
}

TEST(Oracle, RoundsE4m3AroundItsLargestNumber) {
  const FloatFormat e4m3 = {4, 3, 7, Specials::fn};
  EXPECT_EQ(oracle::largest_number(e4m3), 448);
  EXPECT_EQ(oracle::after_largest(e4m3), 480);
  EXPECT_EQ(oracle::smallest_number(e4m3), std::ldexp(1.0, -9));
  EXPECT_TRUE(std::isnan(oracle::code_value(e4m3, 0x7f)));
  EXPECT_EQ(oracle::code_value(e4m3, 0xfe), -448);
  // A tie; 448 = 14 * 32 is even.
  EXPECT_EQ(event_of(e4m3, Round::nearest_even, 464), RangeEvent::none);
  EXPECT_EQ(event_of(e4m3, Round::nearest_away, 464), RangeEvent::overflow);
  EXPECT_EQ(event_of(e4m3, Round::nearest_even, 465), RangeEvent::overflow);
  EXPECT_EQ(event_of(e4m3, Round::toward_zero, 479), RangeEvent::none);
  EXPECT_EQ(event_of(e4m3, Round::toward_zero, 480), RangeEvent::overflow);
  EXPECT_EQ(nearest(e4m3, 465), 448);
}

TEST(Oracle, RoundsTheFormatOfTheAssignPaper) {
  const FloatFormat fp434 = {4, 3, 11, Specials::none};  // bias 2^3 - 1 + 4
  EXPECT_EQ(oracle::largest_number(fp434), 30);          // 1.875 * 2^(15 - 11)
  EXPECT_EQ(oracle::smallest_number(fp434), std::ldexp(1.0, -13));
  EXPECT_EQ(nearest(fp434, 29), 28);  // a tie between 14 * 2 and 15 * 2
  // A tie; 32 has the even one.
  EXPECT_EQ(event_of(fp434, Round::nearest_even, 31), RangeEvent::overflow);
  EXPECT_EQ(event_of(fp434, Round::toward_zero, 31), RangeEvent::none);
  EXPECT_EQ(nearest(fp434, std::numeric_limits<float>::quiet_NaN()), 30);
  EXPECT_EQ(nearest(fp434, -std::numeric_limits<float>::infinity()), -30);
}

TEST(Oracle, BreaksTiesWithoutMantissaBits) {
  const FloatFormat fp200 = {2, 0, 1, Specials::none};  // 0, 1, 2, 4
  EXPECT_EQ(oracle::smallest_number(fp200), 1);
  EXPECT_EQ(oracle::largest_number(fp200), 4);
  EXPECT_TRUE(oracle::same(nearest(fp200, 0.5f), 0));
  EXPECT_TRUE(oracle::same(nearest(fp200, -0.5f), -0.0));
  EXPECT_EQ(event_of(fp200, Round::nearest_even, 0.5f), RangeEvent::underflow);
  EXPECT_EQ(event_of(fp200, Round::nearest_away, 0.5f), RangeEvent::none);
  EXPECT_EQ(nearest(fp200, 0.75f), 1);
  EXPECT_EQ(nearest(fp200, 1.5f), 2);
  EXPECT_EQ(nearest(fp200, 3), 4);
  EXPECT_EQ(event_of(fp200, Round::nearest_even, 5.999f), RangeEvent::none);
  EXPECT_EQ(event_of(fp200, Round::nearest_even, 6), RangeEvent::overflow);
}

TEST(Oracle, ListsEveryValueOnce) {
  for (const Specials specials : kSpecials) {
    const FloatFormat format = {3, 4, 3, specials};
    const oracle::CodeTable table(format);
    EXPECT_EQ(table.magnitudes().back(), oracle::largest_number(format));
    EXPECT_EQ(table.magnitudes()[1], oracle::smallest_number(format));
    for (uint32_t code = 0; code < table.size(); ++code) {
      if (std::isnan(table.value(code))) continue;
      EXPECT_EQ(table.code(table.value(code)), code);
    }
  }
}

}  // namespace
}  // namespace ulp
