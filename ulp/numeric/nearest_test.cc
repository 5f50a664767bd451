// Rounding within fp32 against encoding and decoding, on every kind of format.
#include "ulp/numeric/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/philox.h"
#include "ulp/numeric/math.h"
#include "ulp/numeric/scalar.h"

namespace ulp {
namespace {

const std::vector<std::string> kFormats = {
    "fp32",      "tf32",       "bf16",      "fp16",      "e4m3",       "e5m2",       "e8m5",
    "e8m3",      "e8m1",       "e8m0",      "e2m1",      "e3m0",       "fp(4,3,4)",  "fp(5,2,0)",
    "fp(6,9,0)", "fp(2,23,0)", "fp(2,0,0)", "fp(7,7,1)", "fp(5,0,-3)", "fp(7,22,1)", "fp(3,4,-20)"};

void check(const FloatFormat& format, Overflow overflow, uint32_t pattern) {
  const CodecSpec spec = make_spec(format, overflow);
  const uint32_t settled = float_bits(settle_nan(bits_float(pattern)));
  uint32_t expected = decode_scalar(spec, encode_scalar(spec, Round::nearest_even, settled, 0).code);
  if ((expected & 0x7FFFFFFFu) > 0x7F800000u) expected = kNanBits;
  const uint32_t got = float_bits(make_nearest(format, overflow)(bits_float(pattern)));
  ASSERT_EQ(got, expected) << format_name(format) << " of pattern " << std::hex << pattern;
}

TEST(Nearest, IsTheCodecsRounding) {
  for (const std::string& name : kFormats) {
    const FloatFormat format = parse_format(name);
    for (const Overflow overflow : {Overflow::saturate, Overflow::infinity}) {
      if (overflow == Overflow::infinity && !format.has_inf()) continue;
      // Every code, its neighbours in fp32, and the midpoints to the next code with theirs.
      const CodecSpec spec = make_spec(format, overflow);
      const uint32_t codes = spec.max_code + 2, stride = codes > 70000 ? codes / 65521 : 1;
      for (uint32_t code = 0; code < codes; code += stride) {
        const uint32_t here = decode_scalar(spec, std::min(code, spec.max_code));
        const uint32_t next = decode_scalar(spec, std::min(code + 1, spec.max_code));
        const float middle = 0.5f * bits_float(here) + 0.5f * bits_float(next);
        for (const uint32_t base : {here, float_bits(middle)}) {
          for (const uint32_t near : {base - 1, base, base + 1}) {
            check(format, overflow, near);
            check(format, overflow, near | 0x80000000u);
          }
        }
      }
      // Any pattern at all: infinities, NaN and fp32 subnormals among them.
      for (uint32_t i = 0; i < 50000; ++i) {
        for (const uint32_t word : philox({{i, 1, 0, 0}}, {{2, 3}}).word) check(format, overflow, word);
      }
      for (const uint32_t edge : {0u, 1u, 0x7F7FFFFFu, 0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu,
                                  0x00800000u, 0x007FFFFFu}) {
        check(format, overflow, edge);
        check(format, overflow, edge | 0x80000000u);
      }
    }
  }
}

TEST(Nearest, RefusesFormatsThatItCannotServe) {
  EXPECT_THROW(make_nearest(parse_format("fp(8,3,10)")), Error);    // normal numbers below 2^-126
  EXPECT_THROW(make_nearest(parse_format("fp(2,0,-120)")), Error);  // 2^23 spacings are past fp32
  EXPECT_THROW(make_nearest(parse_format("fp(4,3,4)"), Overflow::infinity), Error);
}

}  // namespace
}  // namespace ulp
