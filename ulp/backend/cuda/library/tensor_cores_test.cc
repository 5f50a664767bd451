#include "ulp/backend/cuda/library/tensor_cores.h"

#include <gtest/gtest.h>

#include <vector>

#include "ulp/base/error.h"
#include "ulp/numeric/scalar.h"

namespace ulp::cuda {
namespace {

// Whether every finite code survives conversion to the operand type and back, and specials have a
// code.
bool survives(Unit unit, const FloatFormat& format) {
  const FloatFormat to = operand_format(unit);
  const CodecSpec from_spec = make_spec(format, Overflow::saturate);
  const CodecSpec to_spec = make_spec(to, Overflow::saturate);
  for (uint32_t code = 0; code < uint32_t{1} << format.bits(); ++code) {
    const uint32_t magnitude = code & ((uint32_t{1} << (format.bits() - 1)) - 1);
    if (magnitude > format.max_code()) continue;
    const uint32_t pattern = decode_scalar(from_spec, code);
    const Encoded operand = encode_scalar(to_spec, Round::nearest_even, pattern, 0);
    if (decode_scalar(to_spec, operand.code) != pattern) return false;
    // A second check where the operand is the head of an fp32 pattern.
    const uint32_t tail = unit == Unit::bf16 ? 0xFFFFu : unit == Unit::tf32 ? 0x1FFFu : 0u;
    EXPECT_EQ(pattern & tail, 0u);
  }
  return (!format.has_inf() || to.has_inf()) && (!format.has_nan() || to.has_nan());
}

bool valid(int exp, int man, int extra_bias, Specials specials) {
  try {
    make_format(exp, man, extra_bias, specials);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<FloatFormat> formats(int min_bits, int max_bits) {
  std::vector<FloatFormat> all;
  for (int exp = 2; exp <= 8; ++exp) {
    for (int man = 0; man <= 23; ++man) {
      if (1 + exp + man < min_bits || 1 + exp + man > max_bits) continue;
      for (const Specials specials : {Specials::none, Specials::ieee, Specials::fn}) {
        for (int b = -256; b <= 256; ++b) {
          if (valid(exp, man, b, specials)) all.push_back(make_format(exp, man, b, specials));
        }
      }
    }
  }
  return all;
}

TEST(Units, HoldsEveryNarrowFormatOrNot) {
  size_t held = 0, refused = 0;
  for (const FloatFormat& format : formats(3, 11)) {
    for (const Unit unit : units()) {
      ASSERT_EQ(holds(unit, format), survives(unit, format)) << unit_name(unit) << " " << format_name(format);
      ++(holds(unit, format) ? held : refused);
    }
  }
  EXPECT_GT(held, 1000u);
  EXPECT_GT(refused, 1000u);
}

// Wider formats at every bias where a unit's answer changes, on either side, and without extra
// bias.
TEST(Units, HoldsEveryWiderFormatOrNot) {
  const std::vector<FloatFormat> all = formats(12, 16);
  size_t checked = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto same_row = [&](size_t j) {
      return all[i].exp == all[j].exp && all[i].man == all[j].man && all[i].specials == all[j].specials;
    };
    for (const Unit unit : units()) {
      const bool here = holds(unit, all[i]);
      const bool first = i == 0 || !same_row(i - 1), last = i + 1 == all.size() || !same_row(i + 1);
      const bool turns = first || last || holds(unit, all[i - 1]) != here || holds(unit, all[i + 1]) != here;
      if (!turns && all[i].extra_bias() != 0) continue;
      ASSERT_EQ(here, survives(unit, all[i])) << unit_name(unit) << " " << format_name(all[i]);
      ++checked;
    }
  }
  EXPECT_GT(checked, 500u);
}

TEST(Units, Fp32HoldsEveryPreset) {
  for (const Preset& preset : presets()) EXPECT_TRUE(holds(Unit::fp32, preset.format)) << preset.name;
}

TEST(Units, OperandFormatsAreThePresets) {
  for (const Unit unit : units()) {
    EXPECT_EQ(operand_format(unit), parse_format(unit_name(unit)));
    EXPECT_EQ(why_not_held(unit, operand_format(unit)), "");
  }
  EXPECT_EQ(operand_bytes(Unit::fp32), 4u);
  EXPECT_EQ(operand_bytes(Unit::tf32), 4u);
  EXPECT_EQ(operand_bytes(Unit::fp16), 2u);
  EXPECT_EQ(operand_bytes(Unit::bf16), 2u);
  EXPECT_EQ(operand_bytes(Unit::e4m3), 1u);
}

UnitChoice choose(const char* a, const char* b, const KernelOptions& options = {}) {
  return choose_unit(parse_format(a), parse_format(b), options);
}

TEST(Units, ChoosesTheNarrowestThatHoldsBoth) {
  for (const char* name : {"fp(4,3,4)", "fp(5,2,0)", "e4m3", "e5m2", "bf16", "e8m5", "e8m1"}) {
    EXPECT_EQ(choose(name, name).unit, Unit::bf16) << name;
    EXPECT_EQ(choose(name, "bf16").unit, Unit::bf16) << name;
  }
  EXPECT_EQ(choose("fp16", "fp16").unit, Unit::fp16);
  EXPECT_EQ(choose("fp16", "fp(4,3,4)").unit, Unit::fp16);
  EXPECT_EQ(choose("fp16", "e5m2").unit, Unit::fp16);
  // fp(5,2,0) has no infinity and so exceeds fp16's range.
  EXPECT_EQ(choose("fp(5,2,0)", "fp16").unit, Unit::tf32);
  EXPECT_EQ(choose("fp16", "bf16").unit, Unit::tf32);
  EXPECT_EQ(choose("fp(6,9,0)", "fp(6,9,0)").unit, Unit::tf32);
  EXPECT_EQ(choose("fp(6,9,0)", "fp(4,3,4)").unit, Unit::tf32);
  EXPECT_EQ(choose("tf32", "tf32").unit, Unit::tf32);
  EXPECT_EQ(choose("fp32", "bf16").unit, Unit::fp32);
  EXPECT_EQ(choose_unit(std::nullopt, parse_format("bf16")).unit, Unit::fp32);
  EXPECT_EQ(choose_unit(std::nullopt, std::nullopt).unit, Unit::fp32);
}

TEST(Units, LooserUnitsMustBeAskedFor) {
  EXPECT_EQ(choose("fp32", "fp32", {.tf32 = true}).unit, Unit::tf32);
  EXPECT_EQ(choose_unit(std::nullopt, std::nullopt, {.tf32 = true}).unit, Unit::tf32);
  // Exactness has priority over a fast start.
  EXPECT_EQ(choose_unit(parse_format("bf16"), parse_format("e4m3"), {.cold_shape = true}).unit, Unit::tf32);
  EXPECT_EQ(choose_unit(parse_format("fp32"), parse_format("e4m3"), {.cold_shape = true}).unit, Unit::fp32);
  // Requesting tf32 changes nothing if a narrower unit is exact.
  EXPECT_EQ(choose("bf16", "e4m3", {.tf32 = true}).unit, Unit::bf16);
  EXPECT_EQ(choose("e4m3", "e4m3", {.fp8_native = true}).unit, Unit::e4m3);
  EXPECT_EQ(choose("e4m3", "e5m2", {.fp8_native = true}).unit, Unit::bf16);
  EXPECT_EQ(choose("bf16", "bf16", {.tensor_core = false, .tf32 = true, .fp8_native = true}).unit,
            Unit::fp32);
}

TEST(Units, SaysWhy) {
  EXPECT_EQ(choose("fp(4,3,4)", "fp(4,3,4)").why, "bf16 holds fp(4,3,4) exactly");
  EXPECT_EQ(choose("e4m3", "e5m2").why, "bf16 holds e4m3 and e5m2 exactly");
  EXPECT_EQ(choose("fp16", "fp16").why, "fp16 needs 11 significant bits, bf16 has 8");
  EXPECT_EQ(choose("fp(6,9,0)", "fp(6,9,0)").why,
            "fp(6,9,0) needs 10 significant bits, bf16 has 8; fp(6,9,0) goes down to 2^-39, fp16 to 2^-24");
  EXPECT_EQ(choose("fp32", "fp32").why, "fp32 needs 24 significant bits, tf32 has 11");
  EXPECT_EQ(choose_unit(std::nullopt, std::nullopt).why, "an operand is exact in fp32 alone");
  EXPECT_EQ(choose("bf16", "bf16", {.tensor_core = false}).why, "tensor cores are off");
}

}  // namespace
}  // namespace ulp::cuda
