// 16-bit codes as the kernels of batchnorm.h read and write them, against the scalar codec: at
// every code and every tie.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "ulp/backend/cuda/batchnorm/batchnorm_args.h"
#include "ulp/numeric/format.h"

namespace ulp::cuda {
namespace {

// Each code, the midpoint to the next one, and the neighbours of that midpoint, in both signs.
TEST(BatchnormCodes, Of16BitsAreTheScalarCodecs) {
  for (const char* name : {"fp(6,9,0)", "fp(5,10,0)", "fp(7,8,-20)", "fp(7,8,0)", "fp(4,11,0)", "fp(6,9,3)",
                           "fp(3,12,0)", "fp(6,9,40)"}) {
    const QuickCodec codec = make_quick(make_spec(parse_format(name), Overflow::saturate));
    ASSERT_EQ(code_of(codec, 16), Code::wide) << name;
    const CodeTarget target = target_of(make_rounder(false, codec, Round::nearest_even, 0), nullptr);
    const auto number = [&](uint32_t code) { return bits_float(decode_scalar(codec.spec, code)); };
    ASSERT_EQ(target.limit, number(codec.spec.max_code));
    for (uint32_t code = 0; code < codec.spec.max_code; ++code) {
      const float middle = number(code) + (number(code + 1) - number(code)) / 2;
      const uint32_t bits = float_bits(middle);
      const float some[8] = {number(code),  middle,  bits_float(bits - 1),  bits_float(bits + 1),
                             -number(code), -middle, -bits_float(bits - 1), -bits_float(bits + 1)};
      const Packed<Code::wide> made = pack<Code::wide>(some, target);
      const Packed<Code::wide> above = pack_relu<Code::wide>(some, target);
      float read[8], rounded[8];
      unpack<Code::wide>(made, target.reading, read);
      std::copy(std::begin(some), std::end(some), rounded);
      round_within<Code::wide>(target, rounded);
      for (int i = 0; i < 8; ++i) {
        const uint32_t wanted = encode_scalar(codec.spec, Round::nearest_even, float_bits(some[i]), 0).code;
        ASSERT_EQ(code_at(made, i), wanted) << name << " " << some[i];
        ASSERT_EQ(code_at(above, i), i < 4 ? wanted : 0) << name << " " << some[i];
        ASSERT_EQ(float_bits(read[i]), decode_scalar(codec.spec, wanted)) << name << " " << some[i];
        ASSERT_EQ(float_bits(rounded[i]), float_bits(read[i])) << name << " " << some[i];
      }
    }
  }
}

// With specials; with values for which 2^23 spacings exceed fp32; with a lift that fp32 does not
// have.
TEST(BatchnormCodes, OthersOf16BitsAreNotTaken) {
  for (const char* name : {"fp16", "fp(8,7,1)", "fp(6,9,-80)", "fp(6,9,-60)"}) {
    const QuickCodec codec = make_quick(make_spec(parse_format(name), Overflow::saturate));
    EXPECT_EQ(code_of(codec, 16), Code::none) << name;
  }
}

}  // namespace
}  // namespace ulp::cuda
