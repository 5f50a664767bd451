#include "ulp/numeric/quick.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ulp/base/philox.h"
#include "ulp/numeric/format.h"

namespace ulp {
namespace {

// Patterns around everything at which something changes: the numbers of the format, their
// midpoints, fp32's edges; and random ones.
std::vector<uint32_t> patterns(const CodecSpec& spec, int bits, uint32_t random) {
  std::vector<uint32_t> made;
  const auto around = [&](uint32_t pattern) {
    for (uint32_t d = 0; d < 7; ++d) made.push_back(pattern + d - 3);
  };
  const uint64_t codes = uint64_t{1} << (bits - 1), step = codes > 512 ? codes / 251 : 1;
  for (uint64_t code = 0; code < codes; code += step) {
    const auto at = static_cast<uint32_t>(code);
    if (at > spec.max_code) break;
    const uint32_t low = decode_scalar(spec, at);
    around(low);
    if (at == spec.max_code) break;
    const uint32_t high = decode_scalar(spec, at + 1);
    around(float_bits(static_cast<float>((double{bits_float(low)} + double{bits_float(high)}) / 2)));
  }
  for (uint32_t field = 0; field < 256; ++field) around(field << 23);
  for (uint32_t i = 0; i < random; ++i) {
    const PhiloxWords words = philox({{i, 7, 8, 9}}, {{1, 2}});
    for (const uint32_t word : words.word) made.push_back(word);
  }
  const size_t n = made.size();
  for (size_t i = 0; i < n; ++i) made.push_back(made[i] ^ 0x80000000u);
  return made;
}

void expect_same(const FloatFormat& format, Overflow overflow, uint32_t random) {
  const CodecSpec spec = make_spec(format, overflow);
  const QuickCodec quick = make_quick(spec);
  const std::vector<uint32_t> inputs = patterns(spec, format.bits(), random);
  int failures = 0;
  for (size_t i = 0; i < inputs.size() && failures < 5; ++i) {
    const uint32_t word = philox({{static_cast<uint32_t>(i), 1, 2, 3}}, {{4, 5}}).word[0];
    const auto compare = [&](Round mode, uint32_t at) {
      const Encoded expected = encode_scalar(spec, mode, inputs[i], at);
      const Encoded made = encode_quick(quick, mode, inputs[i], at);
      if (made.code == expected.code && made.event == expected.event) return;
      ADD_FAILURE() << format_name(format) << " " << round_name(mode) << " " << std::hex << inputs[i]
                    << " at " << at << ": " << made.code << ", not " << expected.code;
      ++failures;
    };
    for (const Round mode : {Round::nearest_even, Round::nearest_away, Round::toward_zero, Round::stochastic})
      compare(mode, word);
    // Where the decision turns, and words that share their first bits with the fraction.
    const uint32_t magnitude = inputs[i] & 0x7FFFFFFFu;
    const uint32_t fraction = magnitude < 0x7F800000u ? locate(spec, magnitude).fraction : 0;
    for (const uint32_t near : {fraction - 1, fraction, fraction + 1, fraction ^ (word & 0xFFFu),
                                fraction | 0xFFFFFFFFu >> quick.shift, 0u, 0xFFFFFFFFu})
      compare(Round::stochastic, near);
  }
  const uint64_t codes = uint64_t{1} << format.bits(), step = codes > 1024 ? codes / 1021 : 1;
  for (uint64_t code = 0; code < codes && failures < 5; code += step) {
    const auto at = static_cast<uint32_t>(code);
    if (decode_quick(quick, at) == decode_scalar(spec, at)) continue;
    ADD_FAILURE() << format_name(format) << " code " << std::hex << at;
    ++failures;
  }
}

TEST(Quick, IsTheScalarCodecForEveryPreset) {
  for (const Preset& preset : presets()) {
    expect_same(preset.format, Overflow::saturate, 20000);
    if (preset.format.has_inf()) expect_same(preset.format, Overflow::infinity, 20000);
  }
}

TEST(Quick, IsTheScalarCodecForEveryShape) {
  for (int exp = 2; exp <= 8; ++exp) {
    for (int man = 0; man <= 23; ++man) {
      for (const Specials specials : {Specials::none, Specials::ieee, Specials::fn}) {
        for (const int bias : {-200, -100, -1, 0, 4, 60, 140}) {
          FloatFormat format{};
          try {
            format = make_format(exp, man, bias, specials);
          } catch (const std::exception&) {
            continue;  // no number of fp32
          }
          expect_same(format, Overflow::saturate, 100);
        }
      }
    }
  }
}

// Every pattern of eleven bits below the sign, with bits below them that may be cut off: all
// binades of a small format, at words on either side of what decides.
TEST(Quick, RoundsSmallFormatsAtEveryPlace) {
  for (const char* name : {"fp(4,3,4)", "fp(5,2,0)", "fp(3,2,0)", "fp(2,3,0)", "fp(2,1,0)", "e4m3", "e5m2"}) {
    const CodecSpec spec = make_spec(parse_format(name), Overflow::saturate);
    const QuickCodec quick = make_quick(spec);
    int failures = 0;
    for (uint32_t top = 0; top < 0x7F80u && failures < 5; ++top) {
      for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
        const uint32_t x = top << 16 | low;
        const uint32_t fraction = locate(spec, x).fraction;
        for (const uint32_t random :
             {fraction - 1, fraction, fraction + 1, fraction & 0xFFFFF000u, ~fraction}) {
          const Encoded expected = encode_scalar(spec, Round::stochastic, x, random);
          const Encoded made = encode_quick(quick, Round::stochastic, x, random);
          if (made.code == expected.code && made.event == expected.event) continue;
          ADD_FAILURE() << name << " " << std::hex << x << " at " << random;
          ++failures;
        }
      }
    }
  }
}

TEST(Quick, AddCutCutsOff) {
  for (uint32_t i = 0; i < 100000; ++i) {
    const PhiloxWords words = philox({{i, 3, 1, 4}}, {{1, 5}});
    const uint32_t a = words.word[0] % 0x7E000000u;
    // Near, so that they overlap, or anything.
    const uint32_t b = i % 2 == 0 ? (a & 0x7F800000u) % 0x70000000u + words.word[1] % 0x0C000000u
                                  : words.word[1] % 0x7E000000u;
    const float x = bits_float(a), y = bits_float(b), sum = add_cut(x, y);
    // The largest number that is not above the sum: exact in 80 bits but where one is far below the
    // other.
    const float larger = x > y ? x : y, smaller = x > y ? y : x;
    EXPECT_LE(sum - larger, smaller) << std::hex << a << " " << b;
    EXPECT_LE(static_cast<long double>(sum), static_cast<long double>(x) + static_cast<long double>(y));
    const float next = bits_float(float_bits(sum) + 1);
    EXPECT_GT(static_cast<long double>(next) - static_cast<long double>(larger),
              static_cast<long double>(smaller))
        << std::hex << a << " " << b;
  }
}

}  // namespace
}  // namespace ulp
