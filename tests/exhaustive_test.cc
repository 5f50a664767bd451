// Every code of every small format, and every border between codes, against the oracle: the scalar
// codec first, then the bulk codec under every vector unit, which must equal it bit for bit.
//
// Formats: all presets of at most 16 bits, and fp(e,m,b) for every e and m that fit in 16 bits,
// with biases from the lowest valid to the highest, in all three kinds of specials. Nothing is
// thinned out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <future>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/oracle.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

constexpr Round kModes[] = {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic};
constexpr Specials kSpecials[] = {Specials::none, Specials::ieee, Specials::fn};
constexpr RoundKey kKey = {.seed = 0x0123456789abcdef, .step = 11, .tensor = 0xfeedf00d, .micro_batch = 3};

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

float toward_infinity(float x) { return std::nextafter(x, std::numeric_limits<float>::infinity()); }

std::vector<Overflow> overflows_of(const FloatFormat& format) {
  if (oracle::has_infinity(format)) return {Overflow::saturate, Overflow::infinity};
  return {Overflow::saturate};
}

// ---- All small formats ----

// Extra biases to try: both ends of what is valid, the usual ones, and those whose normal numbers
// are fp32 subnormals (bias > 127).
std::set<int> extra_biases(int exp, int man, Specials specials) {
  std::set<int> valid;
  for (int b = -512; b <= 512; ++b) {
    if (oracle::is_valid(exp, man, b, specials)) valid.insert(b);
  }
  if (valid.empty()) return {};
  const int usual_bias = (1 << (exp - 1)) - 1;
  std::set<int> chosen = {*valid.begin(), *valid.rbegin()};
  for (const int b : {-3, 0, 1, 4, 128 - usual_bias, 135 - usual_bias}) {
    if (valid.contains(b)) chosen.insert(b);
  }
  return chosen;
}

std::vector<FloatFormat> formats_with_exponent_bits(int exp) {
  std::vector<FloatFormat> formats;
  for (int man = 0; man <= 15 - exp; ++man) {
    for (const Specials specials : kSpecials) {
      for (const int b : extra_biases(exp, man, specials)) {
        formats.push_back(make_format(exp, man, b, specials));
      }
    }
  }
  return formats;
}

std::vector<FloatFormat> small_presets() {
  std::vector<FloatFormat> formats;
  for (const Preset& preset : presets()) {
    if (preset.format.bits() <= 16) formats.push_back(preset.format);
  }
  return formats;
}

// (a) Codes to values and back, one at a time.
void check_codes(const FloatFormat& format, const oracle::CodeTable& table) {
  const uint32_t largest_code = table.code(oracle::largest_number(format));
  const uint32_t half = static_cast<uint32_t>(table.size() / 2);
  for (const Overflow overflow : overflows_of(format)) {
    const CodecSpec spec = make_spec(format, overflow);
    for (uint32_t code = 0; code < table.size(); ++code) {
      const uint32_t pattern = decode_scalar(spec, code);
      const double value = table.value(code);
      ASSERT_TRUE(oracle::same(std::bit_cast<float>(pattern), value))
          << fmt::format("code {:#x} decodes to {:#010x}, the oracle says {:a}", code, pattern, value);
      const bool infinite = std::isinf(value);
      const RangeEvent event = infinite            ? RangeEvent::overflow
                               : std::isnan(value) ? RangeEvent::nan
                                                   : RangeEvent::none;
      const bool comes_back = !infinite || overflow == Overflow::infinity;
      const uint32_t expected = comes_back ? code : largest_code + code / half * half;
      for (const Round mode : kModes) {
        for (const uint32_t random : {0u, 0xffffffffu}) {
          const Encoded again = encode_scalar(spec, mode, pattern, random);
          ASSERT_EQ(again.code, expected) << fmt::format("code {:#x} mode {}", code, round_name(mode));
          ASSERT_EQ(again.event, event) << fmt::format("code {:#x} mode {}", code, round_name(mode));
        }
      }
    }
  }
}

// (b) Inputs at which rounding decides: every value, every midpoint, and the fp32 neighbours of
// both; then NaN codes, and inputs that are far away. Where a format's spacing is fp32's own, a
// midpoint is no fp32 number: then the nearest one stands in.
std::vector<float> decisive_inputs(const FloatFormat& format, const oracle::CodeTable& table) {
  std::vector<double> marks = table.magnitudes();
  marks.push_back(oracle::after_largest(format));
  std::vector<float> inputs;
  const auto push_both_signs = [&](float x) {
    inputs.push_back(x);
    inputs.push_back(-x);
  };
  const auto push_around = [&](double mark) {
    // 2^128, after the largest numbers of all, becomes infinity.
    const float x = static_cast<float>(mark);
    push_both_signs(x);
    push_both_signs(toward_infinity(x));
    push_both_signs(std::nextafter(x, 0.0f));
  };
  for (size_t i = 0; i < marks.size(); ++i) {
    push_around(marks[i]);
    if (i + 1 < marks.size()) push_around((marks[i] + marks[i + 1]) / 2);
  }
  for (uint32_t code = 0; code < table.size(); ++code) {
    if (!std::isnan(table.value(code))) continue;
    inputs.push_back(std::bit_cast<float>(decode_scalar(make_spec(format, Overflow::saturate), code)));
  }
  using Limits = std::numeric_limits<float>;
  for (const float x : {Limits::infinity(), Limits::max(), Limits::min(), Limits::denorm_min(), 1.0f, 3e38f,
                        Limits::quiet_NaN(), std::bit_cast<float>(0x7f800001u),
                        std::bit_cast<float>(0x7fbfffffu), std::bit_cast<float>(0x7fffffffu)}) {
    push_both_signs(x);
  }
  return inputs;
}

struct Written {
  Rounding how;
  std::vector<uint32_t> codes;
  EncodeStats stats;
};

// The scalar codec against the oracle, and what it wrote. NaNs: the oracle says that the code is
// one, and a format without NaN gets the largest number, with the sign.
Written check_scalar(const FloatFormat& format, const oracle::CodeTable& table, const Rounding& how,
                     const std::vector<float>& inputs, const std::vector<uint32_t>& random) {
  const CodecSpec spec = make_spec(format, how.overflow);
  const oracle::Rounder rounder(format, how.mode, how.overflow);
  Written written{how, std::vector<uint32_t>(inputs.size()), {}};
  oracle::Tally tally;
  bool reported = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Encoded got = encode_scalar(spec, how.mode, bits_of(inputs[i]), random[i]);
    const oracle::Rounded expected = rounder.round(inputs[i], random[i]);
    written.codes[i] = got.code;
    tally.add(inputs[i], expected.event);
    const bool negative_code = got.code >= table.size() / 2;
    const bool right = got.code < table.size() && oracle::same(table.value(got.code), expected.value) &&
                       negative_code == std::signbit(inputs[i]) && got.event == expected.event;
    if (right || reported) continue;
    reported = true;
    ADD_FAILURE() << fmt::format(
        "encode_scalar({:#010x} = {:a}, mode {}, {}, random {:#010x}) gives code {:#x}, event {}; the oracle "
        "says {:a}, event {}",
        bits_of(inputs[i]), inputs[i], round_name(how.mode),
        how.overflow == Overflow::infinity ? "inf" : "saturate", random[i], got.code,
        static_cast<int>(got.event), expected.value, static_cast<int>(expected.event));
  }
  written.stats = tally.stats();
  return written;
}

void report_first_difference(int bits, const std::string& what, std::span<const float> inputs,
                             std::span<const uint8_t> bytes, std::span<const uint32_t> expected) {
  const std::vector<uint32_t> codes = oracle::unpack(bits, bytes, inputs.size());
  const auto differ = std::mismatch(codes.begin(), codes.end(), expected.begin()).first;
  if (differ == codes.end()) {
    ADD_FAILURE() << what << ": unused bits of the last byte are not zero";
    return;
  }
  const size_t i = differ - codes.begin();
  ADD_FAILURE() << fmt::format("{}: {:#010x} at {} of {} becomes {:#x}, scalar {:#x}", what,
                               bits_of(inputs[i]), i, inputs.size(), codes[i], expected[i]);
}

// (c) The bulk encoder against the scalar one, under every vector unit.
void check_bulk(const FloatFormat& format, const std::vector<float>& inputs, const Written& expected,
                const ExponentHistogram& expected_histogram) {
  const Rounding& how = expected.how;
  const std::vector<uint8_t> packed = oracle::pack(format.bits(), expected.codes);
  for (const std::string& simd : simd_names()) {
    use_simd(simd);
    const std::string what = fmt::format("{}, mode {}", simd, round_name(how.mode));
    for (const bool with_histogram : {false, true}) {
      std::vector<uint8_t> bytes(packed_bytes(format.bits(), inputs.size()), 0xa5);
      ExponentHistogram histogram;
      const EncodeStats stats = encode(format, how, inputs, bytes, 0, with_histogram ? &histogram : nullptr);
      if (bytes != packed) report_first_difference(format.bits(), what, inputs, bytes, expected.codes);
      EXPECT_EQ(stats.overflow, expected.stats.overflow) << what;
      EXPECT_EQ(stats.underflow, expected.stats.underflow) << what;
      EXPECT_EQ(stats.nan, expected.stats.nan) << what;
      EXPECT_EQ(stats.amax, expected.stats.amax) << what;
      EXPECT_TRUE(!with_histogram || histogram == expected_histogram) << what;
      // A histogram knows only the inputs: one deterministic mode speaks for the three.
      if (how.mode == Round::nearest_away || how.mode == Round::toward_zero) break;
    }
  }
  use_simd("auto");
}

// The same in short pieces, a call each. The inputs ascend, so most pieces lie well inside the
// format's range and have neither zeros nor specials in them: a bulk encoder may take another path
// for such data. Over all the inputs of a small format at once it never would; those of a large one
// have long plain stretches anyway.
void check_bulk_in_pieces(const FloatFormat& format, const std::vector<float>& inputs,
                          const Written& expected) {
  if (format.bits() > 11) return;
  constexpr size_t kPiece = 61;  // some whole vectors of every unit, and a rest
  const std::span<const float> all_inputs = inputs;
  const std::span<const uint32_t> all_codes = expected.codes;
  for (const std::string& simd : simd_names()) {
    use_simd(simd);
    for (size_t first = 0; first < inputs.size(); first += kPiece) {
      const size_t n = std::min(kPiece, inputs.size() - first);
      const std::vector<uint8_t> packed = oracle::pack(format.bits(), all_codes.subspan(first, n));
      std::vector<uint8_t> bytes(packed.size(), 0xa5);
      encode(format, expected.how, all_inputs.subspan(first, n), bytes, first);
      if (bytes == packed) continue;
      const std::string what = fmt::format("{}, mode {}, in pieces", simd, round_name(expected.how.mode));
      report_first_difference(format.bits(), what, all_inputs.subspan(first, n), bytes,
                              all_codes.subspan(first, n));
      return use_simd("auto");
    }
  }
  use_simd("auto");
}

void check_bulk_decode(const FloatFormat& format) {
  std::vector<uint32_t> codes(oracle::code_count(format));
  for (uint32_t code = 0; code < codes.size(); ++code) codes[code] = code;
  const std::vector<uint8_t> packed = oracle::pack(format.bits(), codes);
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  for (const std::string& simd : simd_names()) {
    use_simd(simd);
    std::vector<float> values(codes.size());
    decode(format, packed, values);
    for (const uint32_t code : codes) {
      ASSERT_EQ(bits_of(values[code]), decode_scalar(spec, code)) << simd << " code " << code;
    }
  }
  use_simd("auto");
}

// A format whose scalar codec has been checked, and what the bulk codec must do with the same
// inputs.
struct Checked {
  FloatFormat format;
  std::vector<float> inputs;
  ExponentHistogram histogram;
  std::vector<Written> written;  // in every mode and kind of overflow
};

Checked check_scalar_codec(const FloatFormat& format) {
  SCOPED_TRACE(format_name(format));
  const oracle::CodeTable table(format);
  EXPECT_EQ(largest(format), oracle::largest_number(format));
  EXPECT_EQ(smallest_positive(format), oracle::smallest_number(format));
  EXPECT_EQ(smallest_normal(format), std::ldexp(1.0, oracle::lowest_exponent(format)));
  EXPECT_EQ(epsilon(format), std::ldexp(1.0, -format.man));
  if (!oracle::has_infinity(format)) {
    EXPECT_THROW(make_spec(format, Overflow::infinity), Error);
  }
  check_codes(format, table);

  Checked checked{format, decisive_inputs(format, table), {}, {}};
  checked.histogram = oracle::histogram_of(checked.inputs);
  // The words are the same for all formats: the largest has under 2^19 inputs.
  static const std::vector<uint32_t> kWords = oracle::random_words(kKey, 0, size_t{1} << 19);
  EXPECT_LE(checked.inputs.size(), kWords.size());
  for (const Overflow overflow : overflows_of(format)) {
    for (const Round mode : kModes) {
      checked.written.push_back(check_scalar(format, table, {mode, overflow, kKey}, checked.inputs, kWords));
    }
  }
  // Midpoints have exactly half of all words on their side: the two words at the border, and the
  // ends.
  for (const uint32_t word : {0u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    const std::vector<uint32_t> words(checked.inputs.size(), word);
    check_scalar(format, table, {Round::stochastic, Overflow::saturate, kKey}, checked.inputs, words);
  }
  return checked;
}

void check_bulk_codec(const Checked& checked) {
  SCOPED_TRACE(format_name(checked.format));
  check_bulk_decode(checked.format);
  for (const Written& written : checked.written) {
    check_bulk(checked.format, checked.inputs, written, checked.histogram);
    check_bulk_in_pieces(checked.format, checked.inputs, written);
  }
}

// The scalar check of one format runs beside the bulk check of the one before: about the same work,
// and each on one thread, since short parallel loops would mostly wait.
void check_formats(const std::vector<FloatFormat>& formats) {
  ASSERT_FALSE(formats.empty());
  const int threads_before = thread_count();
  set_thread_count(1);
  std::future<Checked> next = std::async(std::launch::async, check_scalar_codec, formats[0]);
  for (size_t i = 0; i < formats.size(); ++i) {
    const Checked current = next.get();
    if (i + 1 < formats.size()) next = std::async(std::launch::async, check_scalar_codec, formats[i + 1]);
    check_bulk_codec(current);
    if (testing::Test::HasFailure()) break;  // one broken format says enough
  }
  set_thread_count(threads_before);
}

TEST(Exhaustive, Presets) { check_formats(small_presets()); }

class ExhaustiveGrid : public testing::TestWithParam<int> {};

TEST_P(ExhaustiveGrid, EveryCodeAndEveryBorder) {
  const std::vector<FloatFormat> formats = formats_with_exponent_bits(GetParam());
  ASSERT_GT(formats.size(), 20u);
  check_formats(formats);
}

INSTANTIATE_TEST_SUITE_P(ExponentBits, ExhaustiveGrid, testing::Range(2, 9));

// ---- Lengths, alignment, and what lies around the output ----

// Formats of every width from 3 to 32 bits: all splits into exponent and mantissa that are valid
// with b = 0.
std::vector<FloatFormat> formats_of_width(int bits) {
  std::vector<FloatFormat> formats;
  for (int exp = 2; exp <= 8; ++exp) {
    for (const Specials specials : kSpecials) {
      const int man = bits - 1 - exp;
      if (oracle::is_valid(exp, man, 0, specials)) formats.push_back(make_format(exp, man, 0, specials));
    }
  }
  return formats;
}

std::vector<float> mixed_inputs(size_t n) {
  std::vector<float> inputs;
  for (const uint32_t word : oracle::random_words({.seed = 77}, 0, n)) {
    // Half of them near 1, where all formats have numbers; the rest anywhere, NaN and infinity too.
    inputs.push_back(std::bit_cast<float>(word % 2 == 0 ? word : 0x3f000000u ^ (word >> 6)));
  }
  return inputs;
}

std::vector<uint32_t> scalar_codes(const FloatFormat& format, const Rounding& how,
                                   std::span<const float> inputs, uint64_t first) {
  const CodecSpec spec = make_spec(format, how.overflow);
  const std::vector<uint32_t> words = oracle::random_words(how.key, first, inputs.size());
  std::vector<uint32_t> codes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    codes.push_back(encode_scalar(spec, how.mode, bits_of(inputs[i]), words[i]).code);
  }
  return codes;
}

// Writes to and reads from spans that start `skew` elements (and as many bytes) off.
void check_length(const FloatFormat& format, Round mode, size_t n, size_t skew,
                  const std::vector<float>& pool) {
  constexpr uint8_t kGuard = 0xa5;
  const Rounding how = {mode, Overflow::saturate, kKey};
  const std::span<const float> inputs = std::span(pool).subspan(skew, n);
  const std::vector<uint32_t> codes = scalar_codes(format, how, inputs, skew);
  const std::vector<uint8_t> packed = oracle::pack(format.bits(), codes);
  ASSERT_EQ(packed_bytes(format.bits(), n), packed.size());

  std::vector<uint8_t> bytes(skew + packed.size() + 64, kGuard), expected = bytes;
  std::copy(packed.begin(), packed.end(), expected.begin() + static_cast<ptrdiff_t>(skew));
  encode(format, how, inputs, std::span(bytes).subspan(skew, packed.size()), skew);
  ASSERT_EQ(bytes, expected) << "encode, n = " << n << ", skew = " << skew;

  // The codes end where their allocation ends, so that a sanitizer sees a read too far.
  std::vector<uint8_t> tight(skew, kGuard);
  tight.insert(tight.end(), packed.begin(), packed.end());
  tight.shrink_to_fit();
  const float guard = 12345.0f;
  std::vector<float> values(skew + n + 32, guard);
  decode(format, std::span(tight).subspan(skew), std::span(values).subspan(skew, n));
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  for (size_t i = 0; i < values.size(); ++i) {
    const bool inside = i >= skew && i < skew + n;
    const uint32_t pattern = inside ? decode_scalar(spec, codes[i - skew]) : bits_of(guard);
    ASSERT_EQ(bits_of(values[i]), pattern) << "decode, n = " << n << ", skew = " << skew << ", at " << i;
  }
}

TEST(Spans, OddLengthsAndAlignmentsOfEveryWidth) {
  const std::vector<float> pool = mixed_inputs(128);
  for (int bits = 3; bits <= 32; ++bits) {
    ASSERT_FALSE(formats_of_width(bits).empty());
    for (const FloatFormat& format : formats_of_width(bits)) {
      for (const std::string& simd : simd_names()) {
        SCOPED_TRACE(format_name(format) + " " + simd);
        use_simd(simd);
        for (size_t n = 0; n <= 70; ++n) {
          check_length(format, Round::nearest_even, n, n % 5, pool);
          check_length(format, Round::stochastic, n, (n + 2) % 4, pool);
        }
        if (testing::Test::HasFailure()) return use_simd("auto");
      }
    }
  }
  use_simd("auto");
}

// Long enough to be shared out among threads, whose borders then fall inside bytes.
TEST(Spans, LongArraysOfEveryWidthOnAnyNumberOfThreads) {
  const int threads_before = thread_count();
  const std::vector<float> pool = mixed_inputs(70'000);
  for (int bits = 3; bits <= 32; ++bits) {
    const FloatFormat format = formats_of_width(bits).back();
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(fmt::format("{} on {} threads", format_name(format), threads));
      set_thread_count(threads);
      check_length(format, Round::stochastic, 69'997, 1, pool);
    }
  }
  set_thread_count(threads_before);
}

}  // namespace
}  // namespace ulp
