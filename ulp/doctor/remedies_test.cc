#include "ulp/doctor/remedies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "ulp/base/error.h"

namespace ulp {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One product. Formats by name; whatever has no other high format is high itself.
class Remedies : public ::testing::Test {
 protected:
  Remedies() {
    history_.ranges.tensors = {{"fc.out", Kind::activation, 1000, "fp(4,3,4)", "fp(6,9,0)"},
                               {"fc.out.grad", Kind::activation_grad, 1000, "fp(5,2,0)", "fp(6,9,0)"},
                               {"fc.weight", Kind::weight, 100, "fp(4,3,4)", "fp(6,9,0)"},
                               {"fc.weight.grad", Kind::weight_grad, 100, "fp(6,9,0)", "fp(6,9,0)"}};
    for (uint64_t step = 1; step <= 10; ++step) {
      history_.ranges.records.push_back({step, 2, 1, false, std::vector<TensorRange>(4, {1, 0, 0})});
    }
    config_.promote = "off";
    config_.loss_scale = "none";
  }

  void every_step(size_t tensor, TensorRange range) {
    for (RangeRecord& record : history_.ranges.records) record.tensors[tensor] = range;
  }

  // Counts bits as the papers do; a peak is a number that shows who was asked for.
  StepBytes plan(std::span<const FormatOverride> formats) {
    std::map<std::string, Storage> now;
    for (const RangedTensor& tensor : history_.ranges.tensors)
      now[tensor.name] = parse_storage(tensor.format);
    for (const FormatOverride& one : formats) {
      if (storage_name(one.storage) == refused_) fail("plan", "no kernel takes it");
      now.at(one.name) = one.storage;
    }
    StepBytes bytes{0, 1000};
    for (const RangedTensor& tensor : history_.ranges.tensors) {
      const double bits = element_bits(now.at(tensor.name));
      bytes.aggregate_bits += tensor.elements * static_cast<uint64_t>(bits);
      bytes.peak_bytes += static_cast<uint64_t>(bits);
    }
    return bytes;
  }

  Treatment only() {
    const std::vector<Treatment> all =
        find_remedies(history_, diagnose(history_), config_, [this](auto formats) { return plan(formats); });
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Treatment{} : all[0];
  }
  static const Remedy* find(const Treatment& treatment, std::string_view kind) {
    for (const Remedy& remedy : treatment.remedies) {
      if (remedy.kind == kind) return &remedy;
    }
    return nullptr;
  }
  static std::string why_not(const Treatment& treatment, std::string_view kind) {
    for (const RuledOut& one : treatment.ruled_out) {
      if (one.kind == kind) return one.why;
    }
    return "";
  }
  static std::string flag(const Remedy* remedy) {
    return remedy ? remedy->option + " " + remedy->value : "none";
  }
  std::string flag(std::string_view kind) { return flag(find(only(), kind)); }

  DoctorHistory history_;
  RunConfig config_;
  std::string refused_;
};

TEST_F(Remedies, AForwardTensorThatOverflows) {
  every_step(0, {100, 0.2f, 0.01f});
  const Treatment all = only();
  EXPECT_EQ(all.tensor, "fc.out");
  EXPECT_TRUE(all.overflow);
  ASSERT_EQ(all.remedies.size(), 4u);
  EXPECT_EQ(all.remedies[0].kind, "promote");
  EXPECT_EQ(flag(&all.remedies[0]), "--formats fc.out=fp(6,9,0)");
  EXPECT_EQ(all.remedies[0].aggregate_bits, 8000);
  EXPECT_EQ(all.remedies[0].peak_bytes, 8);
  EXPECT_EQ(flag(find(all, "promote_all")), "--promote 0.01");
  EXPECT_EQ(find(all, "promote_all")->aggregate_bits, 8000);
  // 30 for b = 4: of those that hold 200 the one with the smallest numbers.
  EXPECT_EQ(flag(find(all, "shift")), "--formats fc.out=fp(4,3,1)");
  EXPECT_EQ(find(all, "shift")->aggregate_bits, 0);
  EXPECT_EQ(
      find(all, "shift")->text,
      "shift its range to end at 240 (it reached 100); its smallest number is then 0.000977, not 0.000122");
  EXPECT_EQ(flag(find(all, "s2fp8")), "--formats fc.out=s2fp8");
  EXPECT_EQ(find(all, "loss_scale"), nullptr);
  EXPECT_TRUE(all.ruled_out.empty());
}

TEST_F(Remedies, TheLargestThatWasMeasuredDecides) {
  every_step(0, {100, 0.2f, 0});
  history_.ranges.records[4].tensors[0].amax = 120;  // 240 is enough for twice as much
  EXPECT_EQ(flag("shift"), "--formats fc.out=fp(4,3,1)");
  history_.ranges.records[4].tensors[0].amax = 121;
  EXPECT_EQ(flag("shift"), "--formats fc.out=fp(4,3,0)");
  // Once the loss is not a number, sizes say nothing.
  history_.ranges.records[4].loss = kInf;
  EXPECT_EQ(flag("shift"), "--formats fc.out=fp(4,3,1)");
}

TEST_F(Remedies, ALeap) {
  every_step(0, {1e28f, 0.2f, 0});
  history_.ranges.records[0].tensors[0] = {1, 0, 0};
  EXPECT_EQ(why_not(only(), "shift"), "what holds 1e+28 has nothing as small as the 1 of the step before");
}

TEST_F(Remedies, TheRunsOwnFormatsStay) {
  every_step(0, {100, 0.2f, 0});
  config_.formats = "fc.weight=e4m3 fc.out=fp(4,3,4) fc.*=e5m2";
  EXPECT_EQ(flag("promote"), "--formats fc.weight=e4m3 fc.*=e5m2 fc.out=fp(6,9,0)");
}

TEST_F(Remedies, PromotionOfAllIsOfferedWhereItIsOff) {
  every_step(0, {100, 0.2f, 0});
  every_step(2, {100, 0.02f, 0});
  EXPECT_EQ(find(only(), "promote_all")->aggregate_bits, 8000 + 800);
  config_.promote = "0.5";
  EXPECT_EQ(find(only(), "promote_all"), nullptr);
  config_.promote = "off";
  every_step(0, {100, 0.001f, 0});
  every_step(2, {1, 0, 0});
  EXPECT_EQ(why_not(only(), "promote_all"), "it overflows by less than promotion looks at");
}

TEST_F(Remedies, FormatsWithSpecialCodesLoseThem) {
  history_.ranges.tensors[0].format = "e4m3";
  every_step(0, {1000, 0.2f, 0});
  EXPECT_EQ(flag("shift"), "--formats fc.out=fp(4,3,-3)");  // 480 * 8
  history_.ranges.tensors[0].format = "fp16";
  history_.ranges.tensors[0].high = "fp32";
  every_step(0, {100000, 0.2f, 0});
  const Treatment half = only();
  EXPECT_EQ(flag(find(half, "promote")), "--formats fc.out=fp32");
  EXPECT_EQ(flag(find(half, "shift")), "--formats fc.out=fp(5,10,-1)");
  EXPECT_EQ(find(half, "s2fp8")->aggregate_bits, -8000);
}

TEST_F(Remedies, WhatCannotBeIsLeftOutAndSaysWhy) {
  every_step(0, {3e38f, 0.2f, 0});
  const Treatment huge = only();
  EXPECT_EQ(why_not(huge, "promote"), "fp(6,9,0) ends at 8.582e+09, and it reached 3e+38");
  EXPECT_EQ(why_not(huge, "shift"), "fp(4,3,-120), which would fit, has numbers that fp32 does not have");
  history_.ranges.tensors[0].format = "fp(3,2,0)";
  history_.ranges.tensors[0].high = "fp(3,2,0)";
  every_step(0, {100, 0.2f, 0});
  const Treatment narrow = only();
  EXPECT_EQ(flag(find(narrow, "promote")), "--formats fc.out=fp32") << "high itself";
  EXPECT_EQ(why_not(narrow, "s2fp8"), "it takes more bits than fp(3,2,0)");
  history_.ranges.tensors[0].format = "scaled(e4m3)";
  EXPECT_EQ(why_not(only(), "shift"), "scaled(e4m3) has no bias to shift");
  history_.ranges.tensors[0] = {"fc.out", Kind::activation, 1000, "fp(4,3,4)", "fp(6,9,0)"};
  refused_ = "s2fp8";
  EXPECT_EQ(why_not(only(), "s2fp8"), "[plan] no kernel takes it");
}

TEST_F(Remedies, InfiniteNumbersAreNotTheFormatsFault) {
  every_step(0, {kInf, 0.2f, 0});
  const Treatment none = only();
  EXPECT_TRUE(none.remedies.empty());
  EXPECT_EQ(why_not(none, "formats"),
            "what was written to it was infinite already: look at what it is computed from");
}

TEST_F(Remedies, AGradientThatOverflows) {
  for (RangeRecord& record : history_.ranges.records) record.scale = 1024;
  config_.loss_scale = "1024";
  every_step(1, {1 << 20, 0.2f, 0});
  const Treatment all = only();
  // 1.75 * 2^16 holds twice 2^20 at 2^-5 of the scale.
  EXPECT_EQ(all.remedies[0].kind, "loss_scale");
  EXPECT_EQ(flag(&all.remedies[0]), "--loss-scale dynamic:32");
  EXPECT_EQ(all.remedies[0].aggregate_bits, 0);
  EXPECT_EQ(all.remedies.size(), 1u);
  EXPECT_NE(why_not(all, "formats"), "");
  config_.loss_scale = "default";
  const Treatment others = only();
  EXPECT_EQ(why_not(others, "loss_scale"), "a dynamic scale becomes smaller by itself");
  EXPECT_EQ(flag(find(others, "promote")), "--formats fc.out.grad=fp(6,9,0)");
  EXPECT_EQ(find(others, "promote_all"), nullptr) << "promotion looks at forward tensors alone";
  EXPECT_EQ(flag(find(others, "shift")), "--formats fc.out.grad=fp(5,2,-5)");
}

TEST_F(Remedies, AGradientThatIsFlushed) {
  every_step(1, {0x1p-10f, 0, 0.9f});
  const Treatment all = only();
  EXPECT_FALSE(all.overflow);
  // It has room for 2^25, but no scale is above 2^24.
  EXPECT_EQ(flag(&all.remedies[0]), "--loss-scale 16777216");
  EXPECT_EQ(flag(find(all, "promote")), "--formats fc.out.grad=fp(6,9,0)");
  EXPECT_EQ(flag(find(all, "shift")), "--formats fc.out.grad=fp(5,2,25)");
  EXPECT_NE(find(all, "s2fp8"), nullptr);
  every_step(3, {1 << 20, 0, 0});  // another one that comes near the end of its format
  EXPECT_EQ(flag("loss_scale"), "--loss-scale 2048");
  history_.ranges.records[0].scale = history_.ranges.records.back().scale = 8192;
  EXPECT_EQ(why_not(only(), "loss_scale"),
            "2048 is what leaves fc.weight.grad room to double, and it was 8192");
  every_step(3, {0, 0, 0});
  EXPECT_EQ(flag("loss_scale"), "--loss-scale dynamic:16777216") << "nothing is known of one that was zero";
}

TEST_F(Remedies, NoRoomBelow) {
  every_step(1, {100000, 0, 0.9f});
  EXPECT_EQ(why_not(only(), "shift"),
            "its largest magnitudes, up to 1e+05, leave no room below 114688 in fp(5,2,b)");
  history_.ranges.tensors[1].format = "fp(6,9,0)";
  EXPECT_EQ(flag("promote"), "--formats fc.out.grad=fp32");
}

TEST_F(Remedies, WhoIsWellGetsNone) {
  const auto plan_never = [](auto) -> StepBytes { throw std::logic_error("planned for nothing"); };
  EXPECT_TRUE(find_remedies(history_, diagnose(history_), config_, plan_never).empty());
  history_.ranges.records[0].tensors[0].overflow = 0.3f;
  history_.promotions.push_back({1, "fc.out", "fp(4,3,4)", "fp(6,9,0)", 0.3});
  EXPECT_TRUE(find_remedies(history_, diagnose(history_), config_, plan_never).empty());
}

TEST_F(Remedies, OneForEachIllness) {
  every_step(0, {100, 0.2f, 0});
  every_step(1, {0x1p-10f, 0, 0.9f});
  const auto all =
      find_remedies(history_, diagnose(history_), config_, [this](auto formats) { return plan(formats); });
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].tensor, "fc.out");
  EXPECT_EQ(all[1].tensor, "fc.out.grad");
  EXPECT_FALSE(all[1].overflow);
}

}  // namespace
}  // namespace ulp
