#include "ulp/precision/candidates.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "ulp/base/error.h"

namespace ulp {
namespace {

// "HIGH/LOW" of activations, their gradients, weights, their gradients.
std::string text(const Candidates& candidates) {
  std::string result;
  for (const Kind kind : {Kind::activation, Kind::activation_grad, Kind::weight, Kind::weight_grad}) {
    const Candidates::Pair& pair = candidates[kind];
    result +=
        fmt::format("{}{}/{}", result.empty() ? "" : " ", storage_name(pair.high), storage_name(pair.low));
  }
  return result;
}

std::string complaint(const char* hi, const char* lo, const char* lo_grad, const char* weight_grad,
                      const char* preset = "hfp8") {
  try {
    make_candidates(preset, hi, lo, lo_grad, weight_grad);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Candidates, Presets) {
  EXPECT_EQ(text(make_candidates()),
            "fp(6,9,0)/fp(4,3,4) fp(6,9,0)/fp(5,2,0) fp(6,9,0)/fp(4,3,4) fp(6,9,0)/fp(6,9,0)");
  EXPECT_EQ(make_candidates(), make_candidates("hfp8"));
  EXPECT_EQ(text(make_candidates("fp8")), "bf16/e4m3 bf16/e5m2 bf16/e4m3 bf16/bf16");
  EXPECT_EQ(text(make_candidates("s2fp8")), "bf16/s2fp8 bf16/s2fp8 bf16/s2fp8 bf16/bf16");
  EXPECT_FALSE(make_candidates().weight_grad.can_be_low());
  EXPECT_TRUE(make_candidates().weight.can_be_low());
}

TEST(Candidates, NamesReplaceParts) {
  EXPECT_EQ(text(make_candidates("fp8", "fp16")), "fp16/e4m3 fp16/e5m2 fp16/e4m3 fp16/fp16");
  EXPECT_EQ(text(make_candidates("fp8", "", "e5m2")), "bf16/e5m2 bf16/e5m2 bf16/e5m2 bf16/bf16");
  EXPECT_EQ(text(make_candidates("fp8", "", "", "scaled(e5m2)")),
            "bf16/e4m3 bf16/scaled(e5m2) bf16/e4m3 bf16/bf16");
  EXPECT_EQ(text(make_candidates("fp8", "", "", "", "fp32")), "bf16/e4m3 bf16/e5m2 bf16/e4m3 fp32/fp32");
  EXPECT_EQ(text(make_candidates("fp8", "fp32", "bf16", "fp16", "bf16/e5m2")),
            "fp32/bf16 fp32/fp16 fp32/bf16 bf16/e5m2");
  // As wide is not wider.
  EXPECT_EQ(text(make_candidates("fp8", "bf16", "fp16", "bf16")), "bf16/fp16 bf16/bf16 bf16/fp16 bf16/bf16");
}

TEST(Candidates, BadNamesAreRefused) {
  EXPECT_EQ(complaint("", "", "", "", "fp4"),
            "[precision] unknown candidates 'fp4': the nearest is fp8; known are hfp8, fp8, s2fp8");
  EXPECT_NE(complaint("bf17", "", "", ""), "");
  EXPECT_NE(complaint("", "e0m0", "", ""), "");
  EXPECT_NE(complaint("", "", "no", ""), "");
  EXPECT_NE(complaint("", "", "", "bf16/"), "");
  EXPECT_NE(complaint("", "", "", "/bf16"), "");
  EXPECT_NE(complaint("", "", "", "bf16/e4m3/e5m2"), "");
  EXPECT_EQ(complaint("e4m3", "bf16", "", ""),
            "[precision] the low format of activations, bf16 (16 bits), is wider than the high one, e4m3 (8 "
            "bits): it "
            "must have as many bits or fewer");
  EXPECT_NE(complaint("bf16", "", "tf32", "").find("of activation gradients, tf32 (19 bits)"),
            std::string::npos);
  EXPECT_NE(complaint("", "", "", "bf16/fp32").find("of weight gradients, fp32 (32 bits)"),
            std::string::npos);
  EXPECT_NE(complaint("e4m3", "scaled(e4m3)", "", "").find("scaled(e4m3) (8.125 bits)"), std::string::npos);
  EXPECT_NE(complaint("bf16", "bf16+8", "", "").find("bf16+8 (24 bits)"), std::string::npos);
}

TEST(Candidates, BitsOfAnElement) {
  EXPECT_EQ(element_bits(parse_storage("fp32")), 32);
  EXPECT_EQ(element_bits(parse_storage("fp(4,3,4)")), 8);
  EXPECT_EQ(element_bits(parse_storage("s2fp8")), 8);
  EXPECT_EQ(element_bits(parse_storage("scaled(e5m2)")), 8.125);
  EXPECT_EQ(element_bits(parse_storage("bf16+16")), 32);
  EXPECT_EQ(element_bits(parse_storage("bf16+8sr")), 25);
}

TEST(Candidates, OtherKindsHaveNone) {
  EXPECT_THROW(make_candidates()[Kind::statistic], std::logic_error);
  EXPECT_THROW(make_candidates()[Kind::grad_sum], std::logic_error);
}

}  // namespace
}  // namespace ulp
