// Stochastic rounding: the probabilities, the exact words at which it turns, and which random word
// an element gets, recomputed with the oracle's own Philox.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/oracle.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/codec.h"
#include "ulp/numeric/simd.h"

namespace ulp {
namespace {

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

std::vector<Preset> presets_of_8_and_16_bits() {
  std::vector<Preset> chosen;
  for (const Preset& preset : presets()) {
    if (preset.format.bits() == 8 || preset.format.bits() == 16) chosen.push_back(preset);
  }
  return chosen;
}

// Sets the number of threads, and puts it back.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(thread_count()) { set_thread_count(threads); }
  ~ThreadCount() { set_thread_count(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

std::vector<uint8_t> bytes_of(const FloatFormat& format, const RoundKey& key, std::span<const float> inputs,
                              uint64_t first = 0) {
  std::vector<uint8_t> bytes(packed_bytes(format.bits(), inputs.size()));
  encode(format, {Round::stochastic, Overflow::saturate, key}, inputs, bytes, first);
  return bytes;
}

TEST(OwnPhilox, GivesThePublishedWords) {
  // The known answers that come with Random123.
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(oracle::philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(oracle::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// ---- Probabilities ----

struct Place {
  std::string name;
  double below, above;  // neighbours, the exponent unbounded
};

std::vector<Place> places_of(const FloatFormat& format) {
  const double largest = oracle::largest_number(format), smallest = oracle::smallest_number(format);
  const double lowest_normal = std::ldexp(1.0, oracle::lowest_exponent(format));
  const double after_lowest = lowest_normal + smallest;
  const double middle = std::ldexp(1.0, (std::ilogb(largest) + std::ilogb(lowest_normal)) / 2);
  std::vector<Place> places = {
      {"zero", 0, smallest},
      {"lowest normal", lowest_normal, after_lowest},
      {"middle", middle, oracle::bracket(format, middle).above},
      {"above the largest", largest, oracle::after_largest(format)},
  };
  if (format.man > 0) {
    places.push_back({"last subnormal", lowest_normal - smallest, lowest_normal});
    const double top = std::ldexp(1.0, std::ilogb(largest));
    places.push_back({"top binade", top, oracle::bracket(format, top).above});
  }
  return places;
}

// Draws 2^20 times, and counts the elements that went up; all others must have gone down.
void check_frequency(const FloatFormat& format, const Place& place, double fraction, const RoundKey& key,
                     std::vector<float>* values) {
  const double x = place.below + fraction * (place.above - place.below);
  const float input = static_cast<float>(x);
  ASSERT_EQ(input, x) << "the test needs a point that fp32 has";
  constexpr size_t kDraws = size_t{1} << 20;
  const std::vector<float> inputs(kDraws, input);
  std::vector<uint8_t> bytes(packed_bytes(format.bits(), kDraws));
  const Overflow overflow = oracle::has_infinity(format) ? Overflow::infinity : Overflow::saturate;
  const EncodeStats stats = encode(format, {Round::stochastic, overflow, key}, inputs, bytes);
  values->resize(kDraws);
  decode(format, bytes, *values);

  const bool overflows = place.above > oracle::largest_number(format);
  const double infinity = std::numeric_limits<double>::infinity();
  // Saturated, the two neighbours look alike, and only the report tells how many went up.
  const double above = !overflows ? place.above : overflow == Overflow::infinity ? infinity : place.below;
  uint64_t up = 0;
  for (const float value : *values) {
    up += value == above;
    ASSERT_TRUE(value == place.below || value == above) << value;
  }
  if (overflows) {
    ASSERT_TRUE(overflow == Overflow::saturate || up == stats.overflow);
    up = stats.overflow;
  } else {
    ASSERT_EQ(stats.overflow, 0u);
  }
  ASSERT_EQ(stats.underflow, place.below == 0 ? kDraws - up : 0);
  const double sigma = std::sqrt(kDraws * fraction * (1 - fraction));
  EXPECT_NEAR(static_cast<double>(up), kDraws * fraction, 5 * sigma);
}

TEST(Stochastic, FrequenciesAreTheFractions) {
  ASSERT_FALSE(presets_of_8_and_16_bits().empty());
  RoundKey key = {.seed = 2024, .step = 1};
  std::vector<float> values;
  for (const Preset& preset : presets_of_8_and_16_bits()) {
    for (const Place& place : places_of(preset.format)) {
      for (const double fraction : {1 / 8., 1 / 4., 1 / 2., 3 / 4., 7 / 8.}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", preset.name, place.name, fraction));
        ++key.tensor;  // other words each time
        check_frequency(preset.format, place, fraction, key, &values);
      }
    }
  }
}

// ---- The exact words ----

// A number, its negative, and the words around the border. Deep below the smallest number the
// fraction has bits under 2^-32, and below 2^-32 no word at all rounds up.
void check_turning_word(const FloatFormat& format, float x) {
  const CodecSpec spec = make_spec(format, Overflow::saturate);
  const oracle::Bracket around = oracle::bracket(format, x);
  const double capped = std::min(around.above, oracle::largest_number(format));
  const auto check = [&](uint32_t word, double expected) {
    for (const float sign : {1.0f, -1.0f}) {
      const Encoded code = encode_scalar(spec, Round::stochastic, bits_of(sign * x), word);
      ASSERT_TRUE(oracle::same(oracle::code_value(format, code.code), sign * expected)) << fmt::format(
          "{:a} with word {:#010x}: code {:#x}, expected {:a}", sign * x, word, code.code, sign * expected);
      const bool overflow = expected == capped && capped < around.above && word < around.threshold;
      const RangeEvent event = expected == 0 ? RangeEvent::underflow : RangeEvent::none;
      ASSERT_EQ(code.event, overflow ? RangeEvent::overflow : event);
    }
  };
  ASSERT_LT(around.threshold, uint64_t{1} << 32);
  const uint32_t threshold = static_cast<uint32_t>(around.threshold);
  check(threshold, around.below);
  check(0xffffffff, around.below);
  if (threshold > 0) {
    check(threshold - 1, capped);
    check(0, capped);
  }
}

TEST(Stochastic, TurnsAtTheExactWord) {
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    const FloatFormat& format = preset.format;
    // From far under the smallest number to the last number that does not overflow for certain.
    const int lowest = std::max(std::ilogb(oracle::smallest_number(format)) - 40, -149);
    for (int exponent = lowest; exponent <= std::ilogb(oracle::largest_number(format)); ++exponent) {
      for (const uint32_t word : oracle::random_words({.seed = 5}, 0, 16)) {
        const float x = static_cast<float>(std::ldexp(1 + (word >> 9) * 0x1p-23, exponent));
        if (x < oracle::after_largest(format) && std::isfinite(x)) check_turning_word(format, x);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Two neighbouring thresholds, 2^-32 apart, in e5m2 (smallest number 2^-16): fractions k 2^-32 and
// the numbers between them, worked out by hand.
TEST(Stochastic, ResolvesTheLastBitOfTheWord) {
  const FloatFormat e5m2 = make_format(5, 2, 0, Specials::ieee);
  const CodecSpec spec = make_spec(e5m2, Overflow::saturate);
  const auto goes_up = [&](float x, uint32_t word) {
    return encode_scalar(spec, Round::stochastic, bits_of(x), word).code == 1;
  };
  EXPECT_TRUE(goes_up(0x1p-48f, 0));  // 2^-48 / 2^-16 = 2^-32: one word of 2^32
  EXPECT_FALSE(goes_up(0x1p-48f, 1));
  EXPECT_FALSE(goes_up(0x1.fffffep-49f, 0));  // just under: none
  EXPECT_TRUE(goes_up(0x1.8p-47f, 2));        // 3 words
  EXPECT_FALSE(goes_up(0x1.8p-47f, 3));
  EXPECT_FALSE(goes_up(0x1.fffffep-47f, 3));  // 3.99 words are 3
  EXPECT_TRUE(goes_up(0x1p-46f, 3));
  EXPECT_TRUE(goes_up(0x1p-17f, 0x7fffffff));  // a half: half of all words, not one more
  EXPECT_FALSE(goes_up(0x1p-17f, 0x80000000));
  EXPECT_TRUE(goes_up(0x1.fffffep-17f, 0xfffffeff));  // 1 - 2^-24
  EXPECT_FALSE(goes_up(0x1.fffffep-17f, 0xffffff00));
}

// ---- Which word an element gets ----

// In fp(2,0,0) the numbers between 1 and 2 have fractions of 23 bits. Next to element i's word,
// rounded down and up to 23 bits, the lower must stay and the upper must go: so encode used a word
// with these top bits.
void check_words(const RoundKey& key, uint64_t first, size_t n) {
  const FloatFormat format = make_format(2, 0, 0, Specials::none);
  const std::vector<uint32_t> words = oracle::random_words(key, first, n);
  std::vector<float> stays, goes;
  for (const uint32_t word : words) {
    stays.push_back(static_cast<float>(1 + (word >> 9) * 0x1p-23));
    goes.push_back(static_cast<float>(1 + ((word >> 9) + 1) * 0x1p-23));
  }
  std::vector<float> values(n);
  decode(format, bytes_of(format, key, stays, first), values);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(values[i], 1) << "element " << first + i << ": word too small";
  decode(format, bytes_of(format, key, goes, first), values);
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(values[i], 2) << "element " << first + i << ": word too large";
}

const std::vector<RoundKey>& keys() {
  static const std::vector<RoundKey> kKeys = {
      {},
      {.seed = 1},
      {.seed = uint64_t{1} << 32},
      {.step = 1},
      {.tensor = 1},
      {.micro_batch = 1},
      {.seed = 0xfedcba9876543210, .step = 0x89abcdef, .tensor = 0xdeadbeef, .micro_batch = 0xffff},
  };
  return kKeys;
}

TEST(Stochastic, ElementTakesItsWordOfThePhiloxBlock) {
  for (const std::string& simd : simd_names()) {
    use_simd(simd);
    for (const RoundKey& key : keys()) {
      SCOPED_TRACE(fmt::format("{} seed {:#x} step {} tensor {} micro-batch {}", simd, key.seed, key.step,
                               key.tensor, key.micro_batch));
      // Around 2^34 the block number passes 2^32, and its high half enters the counter's second
      // word; the last elements that have a word end at 2^50.
      const uint64_t carry = uint64_t{1} << 34;
      for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{6}, uint64_t{4'000'003}, carry - 501,
                                   carry + 2, 37 * carry - 250, kMaxRandomElements - 1001}) {
        check_words(key, first, 1001);
      }
    }
  }
  use_simd("auto");
}

std::vector<float> gradient_like(size_t n) {
  std::vector<float> inputs;
  for (const uint32_t word : oracle::random_words({.seed = 31}, 0, n)) {
    inputs.push_back(std::bit_cast<float>((word & 0x80ffffffu) + 0x38000000u));
  }
  return inputs;
}

// Packed 5- and 13-bit codes too, where elements of two threads meet in one byte.
std::vector<FloatFormat> formats_to_share_out() {
  std::vector<FloatFormat> formats = {make_format(3, 1, 0, Specials::none),
                                      make_format(5, 7, 0, Specials::ieee)};
  for (const Preset& preset : presets()) formats.push_back(preset.format);
  return formats;
}

TEST(Stochastic, ThreadsDoNotMatter) {
  const std::vector<float> inputs = gradient_like(300'007);
  const RoundKey key = {.seed = 9, .step = 8, .tensor = 7, .micro_batch = 6};
  for (const FloatFormat& format : formats_to_share_out()) {
    std::vector<uint8_t> alone;
    EncodeStats alone_stats;
    for (const int threads : {1, 2, 7}) {
      const ThreadCount set(threads);
      std::vector<uint8_t> bytes(packed_bytes(format.bits(), inputs.size()));
      const EncodeStats stats =
          encode(format, {Round::stochastic, Overflow::saturate, key}, inputs, bytes, 123'457);
      if (threads == 1) {
        alone = bytes;
        alone_stats = stats;
      }
      EXPECT_EQ(bytes, alone) << format_name(format) << " on " << threads << " threads";
      EXPECT_EQ(stats, alone_stats) << format_name(format) << " on " << threads << " threads";
    }
  }
}

TEST(Stochastic, PiecesGiveTheBitsOfTheWhole) {
  constexpr size_t kLength = 50'021;
  const std::vector<float> inputs = gradient_like(kLength);
  const RoundKey key = {.seed = 4, .step = 3, .tensor = 2, .micro_batch = 1};
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 20'000}) {
    for (const FloatFormat& format : formats_to_share_out()) {
      const std::vector<uint32_t> whole =
          oracle::unpack(format.bits(), bytes_of(format, key, inputs, first), kLength);
      // Cuts at every remainder of 4, pieces of 0 and 1 elements, and long ones.
      std::vector<uint32_t> pieces;
      const size_t cuts[] = {0, 1, 2, 2, 5, 12, 31, 96, 1001, 4098, 4099, 20'000, 33'333, kLength};
      for (size_t c = 0; c + 1 < std::size(cuts); ++c) {
        const size_t n = cuts[c + 1] - cuts[c];
        const std::span<const float> piece = std::span(inputs).subspan(cuts[c], n);
        const std::vector<uint32_t> codes =
            oracle::unpack(format.bits(), bytes_of(format, key, piece, first + cuts[c]), n);
        pieces.insert(pieces.end(), codes.begin(), codes.end());
      }
      EXPECT_EQ(pieces, whole) << format_name(format) << " from " << first;
    }
  }
}

// Midpoints turn on one bit of the word. Two keys that differ must disagree on about half the
// elements: five sigma here are a quarter percent of them.
TEST(Stochastic, AnotherKeyGivesOtherBits) {
  const FloatFormat e4m3 = parse_format("e4m3");
  const std::vector<float> midpoints(1'000'000, 1.0625f);
  const std::vector<RoundKey>& all = keys();
  std::vector<std::vector<uint8_t>> written;
  written.reserve(all.size());
  for (const RoundKey& key : all) written.push_back(bytes_of(e4m3, key, midpoints));
  for (size_t a = 0; a < all.size(); ++a) {
    EXPECT_EQ(written[a], bytes_of(e4m3, all[a], midpoints)) << "the same key must repeat";
    for (size_t b = a + 1; b < all.size(); ++b) {
      size_t differ = 0;
      for (size_t i = 0; i < midpoints.size(); ++i) differ += written[a][i] != written[b][i];
      EXPECT_NEAR(static_cast<double>(differ) / midpoints.size(), 0.5, 0.0025) << "keys " << a << ", " << b;
    }
  }
}

}  // namespace
}  // namespace ulp
