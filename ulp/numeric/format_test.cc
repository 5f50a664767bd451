#include "ulp/numeric/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/numeric/scalar.h"

namespace ulp {
namespace {

std::string refusal(std::string_view name) {
  try {
    parse_format(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Format, PresetsAreValidAndKeepTheirNames) {
  for (const Preset& preset : presets()) {
    const FloatFormat& f = preset.format;
    EXPECT_EQ(make_format(f.exp, f.man, f.extra_bias(), f.specials), f) << preset.name;
    EXPECT_EQ(parse_format(preset.name), f) << preset.name;
    EXPECT_EQ(format_name(f), preset.name);
  }
}

TEST(Format, NamesMeanWhatTheyShould) {
  EXPECT_EQ(parse_format("e5m10"), parse_format("fp16"));
  EXPECT_EQ(parse_format("e8m7"), parse_format("bf16"));
  EXPECT_EQ(parse_format("e8m23"), parse_format("fp32"));
  EXPECT_EQ(parse_format("e8m10"), parse_format("tf32"));
  EXPECT_EQ(parse_format("e4m3").specials, Specials::fn);
  EXPECT_EQ(parse_format("e3m4").specials, Specials::ieee);
  for (const auto& [ocp, same] :
       {std::pair("e2m1", "fp(2,1,0)"), std::pair("e2m3", "fp(2,3,0)"), std::pair("e3m2", "fp(3,2,0)")}) {
    EXPECT_EQ(parse_format(ocp), parse_format(same));
    const FloatFormat f = parse_format(ocp);
    const FloatFormat ieee = make_format(f.exp, f.man, 0, Specials::ieee);
    // What files of before have under this name keeps one.
    EXPECT_EQ(parse_format(format_name(ieee)), ieee);
    EXPECT_EQ(format_name(ieee), std::string(same).insert(8, ",ieee"));
  }
  EXPECT_EQ(parse_format("fp(4,3,0)").specials, Specials::none);
  EXPECT_EQ(parse_format("fp(4, 3, -2)"), make_format(4, 3, -2, Specials::none));
  EXPECT_EQ(format_name(make_format(4, 3, 0, Specials::ieee)), "fp(4,3,0,ieee)");
  EXPECT_EQ(format_name(parse_format("fp(5,10,0,ieee)")), "fp16");
  EXPECT_EQ(parse_format("fp(4,3,4)").bias, 11);
  EXPECT_EQ(parse_format("fp(4,3,4)").extra_bias(), 4);
}

TEST(Format, PyTorchsNamesAreTaken) {
  for (const auto& [other, own] :
       {std::pair("bfloat16", "bf16"), std::pair("float16", "fp16"), std::pair("float32", "fp32"),
        std::pair("float8_e4m3fn", "e4m3"), std::pair("float8_e5m2", "e5m2")}) {
    EXPECT_EQ(parse_format(other), parse_format(own));
    EXPECT_EQ(format_name(parse_format(other)), own);
  }
}

TEST(Format, HoldsWhatTheStandardsSay) {
  EXPECT_EQ(largest(parse_format("e4m3")), 448.0f);
  EXPECT_EQ(largest(parse_format("e5m2")), 57344.0f);
  EXPECT_EQ(largest(parse_format("fp(4,3,4)")), 30.0f);
  EXPECT_EQ(largest(parse_format("fp(5,2,0)")), 114688.0f);
  EXPECT_EQ(largest(parse_format("fp32")), 3.40282347e38f);
  EXPECT_EQ(largest(parse_format("e2m1")), 6.0f);
  EXPECT_EQ(largest(parse_format("e3m2")), 28.0f);
  EXPECT_EQ(largest(parse_format("e2m3")), 7.5f);
  EXPECT_EQ(smallest_positive(parse_format("fp16")), 0x1p-24f);
  EXPECT_EQ(smallest_normal(parse_format("bf16")), 0x1p-126f);
  EXPECT_EQ(smallest_positive(parse_format("fp32")), 0x1p-149f);
  EXPECT_EQ(epsilon(parse_format("e5m2")), 0.25f);
}

TEST(Format, RefusesWhatWasPutTogetherByHand) {
  for (const FloatFormat& f :
       {FloatFormat{0, 3, 0, Specials::none}, FloatFormat{8, 30, 127, Specials::ieee},
        FloatFormat{4, 3, 300, Specials::none}, FloatFormat{9, 3, 255, Specials::none}}) {
    EXPECT_THROW(check_format(f), Error);
    EXPECT_THROW(make_spec(f, Overflow::saturate), Error);
  }
  EXPECT_NO_THROW(check_format({4, 3, 11, Specials::none}));
}

TEST(Format, RefusesWithTheLimits) {
  EXPECT_NE(refusal("fp17").find("known: fp32, tf32, bf16, fp16"), std::string::npos);
  EXPECT_NE(refusal("fp(1,3,0)").find("2 to 8"), std::string::npos);
  EXPECT_NE(refusal("e4m24").find("0 to 23"), std::string::npos);
  EXPECT_NE(refusal("fp(8,7,0)").find("b may be 1 to 16"), std::string::npos);
  EXPECT_NE(refusal("fp(8,23,5)").find("no b makes"), std::string::npos);
  EXPECT_NE(refusal("fp(4,3,99999)").find("b may be -119 to 140"), std::string::npos);
  EXPECT_NE(refusal("fp(4,3,-2147483648)").find("b may be -119 to 140"), std::string::npos);
  EXPECT_NE(refusal("e9m3").find("e9m3: exponent bits"), std::string::npos);
  EXPECT_NO_THROW(parse_format("fp(4,3,-119)"));
  EXPECT_NO_THROW(parse_format("fp(4,3,140)"));
  EXPECT_THROW(parse_format("fp(4,3,-120)"), Error);
  EXPECT_THROW(parse_format("fp(4,3,141)"), Error);
  for (const char* name : {"", "fp", "e4m", "em3", "e4m3m3", "fp(4,3)", "fp(4,3,4", "fp(4,3,4,5)",
                           "fp(4,3,x)", "FP16", "e-4m3", "fp(4,,3)", "fp(99999999999,3,0)"}) {
    EXPECT_NE(refusal(name).find("unknown format"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace ulp
