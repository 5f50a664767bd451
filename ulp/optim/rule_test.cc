// Which rules there are, what they store, and Kahan's sum.
#include "ulp/optim/rule.h"

#include <gtest/gtest.h>

#include <string>

#include "ulp/base/error.h"
#include "ulp/numeric/nearest.h"

namespace ulp {
namespace {

std::string stored(const char* rule, const char* weight) {
  try {
    return storage_name(stored_weight(parse_update_rule(rule), parse_storage(weight)));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(UpdateRule, TextsComeBack) {
  for (const UpdateRule& rule : update_rules())
    EXPECT_EQ(parse_update_rule(update_rule_text(rule)), rule) << update_rule_text(rule);
  for (const char* text : {"master", "stochastic+kahan", "extra:0", "extra:16", "extra:13:sr"})
    EXPECT_EQ(update_rule_text(parse_update_rule(text)), text);
  for (const char* text :
       {"", "extra", "extra:", "extra:17", "extra:-1", "extra:8:rs", "extra:8sr", "Kahan", "extra:1e1"}) {
    EXPECT_THROW(parse_update_rule(text), Error) << text;
  }
}

// Weights of 16 bits stay plain codes of their format, with or without more bits beside them.
TEST(UpdateRule, EveryRuleStoresWeights) {
  for (const UpdateRule& rule : update_rules()) {
    const bool master = rule.kind == UpdateRule::Kind::master;
    const Storage weight = parse_storage(master ? "fp32" : "bf16"), stored = stored_weight(rule, weight);
    EXPECT_EQ(storage_name(stored).find(storage_name(weight)), 0u) << update_rule_text(rule);
    EXPECT_GE(storage_size(stored, 1024).bytes(), storage_size(weight, 1024).bytes());
    EXPECT_THROW(stored_weight(rule, parse_storage("s2fp8")), Error) << update_rule_text(rule);
  }
}

TEST(UpdateRule, SaysWhatAWeightIsStoredAs) {
  EXPECT_EQ(stored("master", "fp32"), "fp32");
  EXPECT_EQ(stored("plain", "bf16"), "bf16");
  EXPECT_EQ(stored("plain", "fp32"), "fp32");
  EXPECT_EQ(stored("stochastic", "e5m2"), "e5m2");
  EXPECT_EQ(stored("kahan", "fp16"), "fp16");
  EXPECT_EQ(stored("extra:8", "bf16"), "bf16+8");
  EXPECT_EQ(stored("extra:13:sr", "fp16"), "fp16+13sr");
  EXPECT_NE(stored("master", "bf16").find("choose another rule"), std::string::npos);
  EXPECT_NE(stored("kahan", "fp32").find("at most 16 bits"), std::string::npos);
  EXPECT_NE(stored("stochastic", "fp32").find("at most 16 bits"), std::string::npos);
  EXPECT_NE(stored("extra:8", "fp32").find("at most 16 bits"), std::string::npos);
  EXPECT_NE(stored("extra:14", "fp16").find("0 to 13"), std::string::npos);
  EXPECT_NE(stored("extra:4", "e8m5").find("8 or 16"), std::string::npos);
  EXPECT_NE(stored("plain", "s2fp8").find("plain format"), std::string::npos);
}

// A thousand updates, each far below half a unit: nearest rounding keeps none of them, the
// compensated sum all.
TEST(Kahan, KeepsWhatRoundingWouldLose) {
  const Nearest near = make_nearest(parse_format("bf16"));
  float plain = 1, weight = 1, compensation = 0;
  const float decrease = 0x1p-12f;
  for (int i = 0; i < 1024; ++i) {
    plain = near(plain - decrease);
    const Compensated next = kahan_update(weight, decrease, compensation, near, near);
    weight = next.weight;
    compensation = next.compensation;
  }
  EXPECT_EQ(plain, 1.0f);
  EXPECT_EQ(weight - compensation, 1 - 1024 * 0x1p-12f);
}

}  // namespace
}  // namespace ulp
