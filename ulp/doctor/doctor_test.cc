#include "ulp/doctor/doctor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace ulp {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// Two products and what is between, all in formats of 8 bits but the gradients of weights. Numbers
// of fp(4,3,4): 2^-13 to 30; of fp(5,2,0): 2^-16 to 2^16 * 1.75.
std::vector<RangedTensor> network() {
  std::vector<RangedTensor> tensors;
  const auto add = [&](const std::string& name, Kind kind, const char* format) {
    tensors.push_back({name, kind, 1000, format, "fp(6,9,0)"});
  };
  add("input.out", Kind::activation, "fp(4,3,4)");
  for (const std::string node : {"conv1", "relu1", "conv2"}) {
    add(node + ".out", Kind::activation, "fp(4,3,4)");
    add(node + ".out.grad", Kind::activation_grad, "fp(5,2,0)");
    if (!node.starts_with("conv")) continue;
    add(node + ".weight", Kind::weight, "fp(4,3,4)");
    add(node + ".weight.grad", Kind::weight_grad, "fp(6,9,0)");
  }
  return tensors;
}

class Doctor : public ::testing::Test {
 protected:
  Doctor() { history_.ranges.tensors = network(); }

  void steps(uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      RangeRecord record{step, 2, 1, false,
                         std::vector<TensorRange>(history_.ranges.tensors.size(), {1, 0, 0})};
      history_.ranges.records.push_back(std::move(record));
    }
  }
  RangeRecord& at(uint64_t step) {
    for (RangeRecord& record : history_.ranges.records) {
      if (record.step == step) return record;
    }
    throw std::logic_error("no such step");
  }
  TensorRange& at(uint64_t step, const std::string& name) {
    for (size_t i = 0; i < history_.ranges.tensors.size(); ++i) {
      if (history_.ranges.tensors[i].name == name) return at(step).tensors[i];
    }
    throw std::logic_error("no such tensor");
  }
  void promote(uint64_t step, const std::string& name) {
    history_.promotions.push_back({step, name, "fp(4,3,4)", "fp(6,9,0)", 0.5});
  }
  Diagnosis found(uint64_t until = UINT64_MAX) const { return diagnose(history_, until); }

  DoctorHistory history_;
};

TEST_F(Doctor, OrderOfAStep) {
  std::vector<std::string> names;
  for (const size_t i : running_order(history_.ranges.tensors))
    names.push_back(history_.ranges.tensors[i].name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"input.out", "conv1.weight", "conv1.out", "relu1.out", "conv2.weight",
                                      "conv2.out", "conv2.out.grad", "conv2.weight.grad", "relu1.out.grad",
                                      "conv1.out.grad", "conv1.weight.grad"}));
  EXPECT_TRUE(running_order({}).empty());
}

TEST_F(Doctor, FormatsOverTime) {
  promote(5, "conv1.out");
  EXPECT_EQ(history_.format_at(1, 1), "fp(4,3,4)");
  EXPECT_EQ(history_.format_at(1, 5), "fp(4,3,4)") << "the step that overflowed";
  EXPECT_EQ(history_.format_at(1, 6), "fp(6,9,0)");
  EXPECT_EQ(history_.format_at(0, 6), "fp(4,3,4)");
  EXPECT_EQ(largest_of("fp(4,3,4)"), 30);
  EXPECT_EQ(smallest_of("fp(4,3,4)"), 0x1p-13f);
  EXPECT_EQ(largest_of("e4m3"), 448);
  EXPECT_EQ(largest_of("s2fp8"), std::nullopt);
  EXPECT_EQ(smallest_of("s2fp8"), std::nullopt);
}

TEST_F(Doctor, NothingRecorded) {
  const Diagnosis empty = found();
  EXPECT_EQ(empty.condition, Condition::empty);
  EXPECT_EQ(empty.sentence, "nothing to say: no step was recorded");
  EXPECT_FALSE(empty.overflow || empty.flush || empty.nan || empty.subject);
  steps(5, 9);
  EXPECT_EQ(found(4).condition, Condition::empty);
}

TEST_F(Doctor, NothingWrong) {
  steps(1, 40);
  const Diagnosis well = found();
  EXPECT_EQ(well.condition, Condition::healthy);
  EXPECT_TRUE(well.sentence.starts_with("healthy: nothing overflowed"));
  EXPECT_FALSE(well.overflow || well.flush || well.nan || well.subject);
  EXPECT_TRUE(well.overflows.empty() && well.flushes.empty());
  EXPECT_EQ(well.last_step, 40u);
}

TEST_F(Doctor, WhoIsNearestToOverflow) {
  steps(1, 40);
  at(7, "conv1.out").amax = 29;
  at(9, "conv2.out.grad").amax = 100000;
  at(11, "relu1.out") = {40, 0.001f, 0};  // it has
  const std::vector<Near> nearest = found().nearest;
  ASSERT_EQ(nearest.size(), Diagnosis::kRanked);
  EXPECT_EQ(nearest[0].name, "conv1.out");
  EXPECT_EQ(nearest[0].format, "fp(4,3,4)");
  EXPECT_EQ(nearest[0].at.step, 7u);
  EXPECT_NEAR(*nearest[0].at.exponent, std::log2(29.0 / 30), 1e-9);
  EXPECT_EQ(nearest[1].name, "conv2.out.grad");
  EXPECT_EQ(nearest[2].name, "input.out") << "the rest alike, in their order";
}

TEST_F(Doctor, ALeapIsNoMatterOfFormats) {
  steps(1, 10);
  for (uint64_t step = 5; step <= 10; ++step) at(step, "conv1.out") = {1 << 12, 0.5f, 0};
  EXPECT_TRUE(found().sentence.ends_with("; it had grown 2^12 times in one step: look at the learning rate"));
  for (uint64_t step = 5; step <= 10; ++step) at(step, "conv1.out") = {1 << 9, 0.5f, 0};
  EXPECT_TRUE(found().sentence.ends_with("of fp(4,3,4)"));
}

TEST_F(Doctor, FindsThePlantedOne) {
  steps(1, 60);
  for (uint64_t step = 20; step <= 60; ++step) {
    at(step, "relu1.out") = {static_cast<float>(step) * 2, 0.1f, 0};
    if (step >= 25) at(step, "conv2.out") = {1000, 0.9f, 0};
    if (step >= 30) at(step, "conv1.weight") = {1000, 0.9f, 0};
  }
  for (uint64_t step = 1; step < 20; ++step) at(step, "relu1.out").amax = static_cast<float>(step);
  const Diagnosis sick = found();
  EXPECT_EQ(sick.condition, Condition::forward_overflow);
  EXPECT_EQ(sick.sentence,
            "forward overflow in relu1.out since step 20: up to 10% of it was beyond 30, the largest number "
            "of fp(4,3,4)");
  ASSERT_TRUE(sick.overflow && sick.subject);
  EXPECT_EQ(sick.overflow->name, "relu1.out");
  EXPECT_EQ(sick.overflow->since, 20u);
  EXPECT_EQ(sick.overflow->format, "fp(4,3,4)");
  EXPECT_EQ(sick.overflow->largest, 30);
  EXPECT_EQ(sick.overflow->first.amax, 40);
  EXPECT_EQ(sick.overflow->last, 60u);
  EXPECT_FALSE(sick.overflow->ended);
  ASSERT_EQ(sick.overflow->before.size(), 9u);
  EXPECT_EQ(sick.overflow->before.front().step, 12u);
  EXPECT_EQ(sick.overflow->before.front().amax, 12);
  EXPECT_NEAR(*sick.overflow->before.front().exponent, std::log2(12.0 / 30), 1e-9);
  EXPECT_EQ(sick.overflow->before.back().step, 20u);
  EXPECT_NEAR(sick.overflow->before.back().overflow, 0.1, 1e-6);
  // By share the others are ahead of it.
  ASSERT_EQ(sick.overflows.size(), 3u);
  EXPECT_EQ(sick.overflows[0].name, "conv2.out");
  EXPECT_NEAR(sick.overflows[0].mean, 0.9 * 36 / 60, 1e-6);
  EXPECT_EQ(sick.overflows[0].worst_step, 25u);
  EXPECT_EQ(sick.overflows[1].name, "conv1.weight");
  EXPECT_EQ(sick.overflows[2].name, "relu1.out");
  ASSERT_EQ(sick.overflows[2].over_time.size(), Diagnosis::kColumns);
  EXPECT_EQ(sick.overflows[2].over_time.front(), 0);
  EXPECT_NEAR(sick.overflows[2].over_time.back(), 0.1, 1e-6);
  // As it stood before.
  EXPECT_EQ(found(19).condition, Condition::healthy);
  EXPECT_EQ(found(20).overflow->name, "relu1.out");
  EXPECT_EQ(found(20).last_step, 20u);
}

TEST_F(Doctor, InOneStepTheOneThatRunsFirst) {
  const std::vector<std::string> order = {"conv1.weight",   "conv1.out",      "conv2.weight",
                                          "conv2.out",      "conv2.out.grad", "conv2.weight.grad",
                                          "relu1.out.grad", "conv1.out.grad", "conv1.weight.grad"};
  steps(1, 5);
  for (size_t from = order.size(); from-- > 0;) {
    at(3, order[from]).overflow = 0.5f;
    EXPECT_EQ(found().overflow->name, order[from]);
    EXPECT_EQ(found().subject->name, order[from]);
    EXPECT_EQ(found().condition, from >= 4 ? Condition::gradient_overflow : Condition::forward_overflow);
  }
  // But an earlier step goes first.
  at(2, "conv1.out.grad").overflow = 0.5f;
  EXPECT_EQ(found().overflow->name, "conv1.out.grad");
}

TEST_F(Doctor, ALittleOverflow) {
  steps(1, 100);
  at(3, "conv1.out").overflow = 1e-5f;
  at(9, "conv2.out").overflow = 0.009f;
  const Diagnosis slight = found();
  EXPECT_EQ(slight.condition, Condition::slight);
  EXPECT_EQ(slight.sentence, "healthy: a little overflow, at most 0.90% of conv2.out at step 9");
  EXPECT_EQ(slight.overflow->name, "conv1.out");
  EXPECT_EQ(slight.overflow->since, 3u);
  // One that matters is what it is about, though it was not the first.
  for (uint64_t step = 50; step <= 100; ++step) at(step, "relu1.out").overflow = 0.2f;
  EXPECT_EQ(found().overflow->name, "conv1.out");
  EXPECT_EQ(found().subject->name, "relu1.out");
  EXPECT_EQ(found().subject->since, 50u);
  EXPECT_EQ(found().condition, Condition::forward_overflow);
}

TEST_F(Doctor, PromotionEndsAnOverflow) {
  steps(1, 12);
  for (uint64_t step = 4; step <= 6; ++step) at(step, "conv1.out") = {100, 0.4f, 0};
  for (uint64_t step = 7; step <= 12; ++step) at(step, "conv1.out") = {100, 0, 0};
  EXPECT_EQ(found().condition, Condition::forward_overflow) << "a few quiet steps say little";
  promote(6, "conv1.out");
  const Diagnosis settled = found();
  EXPECT_EQ(settled.condition, Condition::settled);
  EXPECT_EQ(settled.sentence,
            "healthy again: conv1.out overflowed first, at step 4, and was promoted to fp(6,9,0)");
  EXPECT_TRUE(settled.overflow->ended);
  EXPECT_EQ(settled.overflow->promoted->step, 6u);
  EXPECT_EQ(settled.promoted, 1u);
  EXPECT_EQ(found(5).condition, Condition::forward_overflow) << "not promoted yet";
  // Another one goes on.
  for (uint64_t step = 8; step <= 12; ++step) at(step, "conv2.out").overflow = 0.4f;
  EXPECT_EQ(found().condition, Condition::forward_overflow);
  EXPECT_EQ(found().subject->name, "conv2.out");
  EXPECT_EQ(found().overflow->name, "conv1.out");
  // As does one that was promoted in vain.
  at(10, "conv1.out").overflow = 0.4f;
  EXPECT_EQ(found().subject->name, "conv1.out");
  EXPECT_EQ(found().subject->format, "fp(4,3,4)");
}

TEST_F(Doctor, AnOverflowThatEndsByItself) {
  steps(1, 100);
  for (uint64_t step = 1; step <= 30; ++step) at(step, "conv1.out").overflow = 0.4f;
  const Diagnosis settled = found();
  EXPECT_EQ(settled.condition, Condition::settled);
  EXPECT_EQ(settled.sentence,
            "healthy again: conv1.out overflowed first, at step 1, but has not since step 30");
  EXPECT_EQ(found(50).condition, Condition::settled);
  EXPECT_EQ(found(37).condition, Condition::forward_overflow);
}

TEST_F(Doctor, GradientsFlushed) {
  steps(1, 30);
  for (uint64_t step = 10; step <= 30; ++step) at(step, "conv1.out.grad") = {1e-5f, 0, 0.8f};
  for (uint64_t step = 9; step <= 30; ++step)
    at(step, "conv2.out.grad") = {1e-4f, 0, 0.5f};  // not more than half
  const Diagnosis sick = found();
  EXPECT_EQ(sick.condition, Condition::flushed);
  EXPECT_EQ(sick.sentence,
            "gradients flushed to zero in conv1.out.grad since step 10: up to 80% of it was below what "
            "fp(5,2,0) holds");
  EXPECT_EQ(sick.flush->since, 10u);
  EXPECT_EQ(sick.flush->smallest, 0x1p-16f);
  EXPECT_FALSE(sick.overflow);
  ASSERT_EQ(sick.flushes.size(), 1u);
  EXPECT_EQ(sick.flushes[0].name, "conv1.out.grad");
  // Overflow is worse, and of forward tensors only the first to flush is told.
  for (uint64_t step = 20; step <= 30; ++step) at(step, "conv2.out").overflow = 0.4f;
  at(9, "conv2.out").underflow = 0.9f;
  EXPECT_EQ(found().condition, Condition::forward_overflow);
  EXPECT_EQ(found().flush->name, "conv2.out");
  EXPECT_EQ(found().flushes.size(), 1u);
}

TEST_F(Doctor, TheLossBecameNan) {
  steps(1, 30);
  for (uint64_t step = 20; step <= 30; ++step) {
    at(step).loss = kNan;
    for (TensorRange& range : at(step).tensors) range.amax = kNan;
  }
  const Diagnosis alone = found();
  EXPECT_EQ(alone.condition, Condition::not_finite);
  EXPECT_EQ(alone.sentence, "the loss became nan at step 20; the first NaN was in input.out at step 20");
  at(19, "conv2.out.grad").amax = kNan;
  at(19, "relu1.out.grad").amax = kNan;
  EXPECT_EQ(found().sentence,
            "the loss became nan at step 20; the first NaN was in conv2.out.grad at step 19");
  EXPECT_EQ(found().nan->name, "conv2.out.grad");
  at(12, "conv2.out") = {kInf, 0.001f, 0};
  EXPECT_EQ(found().sentence,
            "the loss became nan at step 20; conv2.out had overflowed since step 12, up to 0.10% of it in "
            "fp(4,3,4); the first NaN was in conv2.out.grad at step 19");
  EXPECT_EQ(found().subject->name, "conv2.out");
  EXPECT_TRUE(std::isinf(*found().overflow->first.exponent));
  EXPECT_EQ(found(19).condition, Condition::slight);
  for (uint64_t step = 15; step <= 20; ++step) at(step, "conv1.out").overflow = 0.5f;
  EXPECT_EQ(found().overflow->name, "conv2.out");
  EXPECT_EQ(found().subject->name, "conv1.out") << "what is serious is the cause";
}

TEST_F(Doctor, TheLossBecameInfiniteForAnotherReason) {
  steps(1, 30);
  at(30).loss = kInf;
  EXPECT_EQ(found().sentence,
            "the loss became inf at step 30, and no narrow tensor overflowed or had a NaN before: look at "
            "the learning "
            "rate");
  EXPECT_FALSE(found().subject);
}

// A loss scale that is too large at first is no illness.
TEST_F(Doctor, SkippedStepsAreHowALossScaleFindsItsPlace) {
  steps(1, 40);
  for (uint64_t step = 1; step <= 40; ++step)
    at(step).scale = step <= 7 ? std::ldexp(65536.0, -int(step - 1)) : 1024;
  for (uint64_t step = 1; step <= 6; ++step) {
    at(step).skipped = true;
    at(step, "conv1.out.grad") = {kInf, 0.4f, 0};
  }
  const Diagnosis well = found();
  EXPECT_EQ(well.condition, Condition::healthy);
  EXPECT_EQ(well.skipped, 6u);
  EXPECT_EQ(well.skipped_at_end, 0u);
  EXPECT_EQ(well.first_scale, 65536);
  EXPECT_EQ(well.last_scale, 1024);
  EXPECT_TRUE(well.overflows.empty());
  EXPECT_EQ(found(6).condition, Condition::healthy);
  // Forward tensors are what they are in any step.
  at(1, "conv1.out").overflow = 0.5f;
  EXPECT_EQ(found().overflow->name, "conv1.out");
}

TEST_F(Doctor, GradientsThatOverflowForGood) {
  steps(1, 60);
  for (uint64_t step = 41; step <= 60; ++step) {
    at(step).skipped = true;
    at(step).scale = std::ldexp(1.0, 41 - int(step));
    at(step, "conv2.out.grad") = {kInf, 0.001f, 0};
  }
  at(3).skipped = true;
  at(3, "conv1.out.grad") = {kInf, 0.5f, 0};
  const Diagnosis sick = found();
  EXPECT_EQ(sick.condition, Condition::gradient_overflow);
  EXPECT_EQ(sick.skipped_at_end, 20u);
  EXPECT_EQ(sick.sentence,
            "gradient overflow in conv2.out.grad since step 41: up to 0.10% of it was beyond 114688, the "
            "largest number "
            "of fp(5,2,0), at a loss scale of 1; the last 20 steps were skipped");
  // A little overflow forward is not why; a lot is.
  for (uint64_t step = 1; step <= 60; ++step) at(step, "conv1.out").overflow = 0.001f;
  EXPECT_EQ(found().subject->name, "conv2.out.grad");
  for (uint64_t step = 41; step <= 60; ++step) at(step, "conv1.out").overflow = 0.1f;
  EXPECT_EQ(found().subject->name, "conv1.out");
  EXPECT_TRUE(found().sentence.ends_with("; the last 20 steps were skipped"));
}

TEST_F(Doctor, GradientsThatAreNanForGood) {
  steps(1, 60);
  for (uint64_t step = 41; step <= 60; ++step) {
    at(step).skipped = true;
    at(step, "conv1.out.grad").amax = kNan;
    if (step > 41) at(step, "conv2.out.grad").amax = kNan;
  }
  EXPECT_EQ(found().condition, Condition::gradient_overflow);
  EXPECT_EQ(found().sentence,
            "NaN in the gradients since step 41, first in conv1.out.grad; the last 20 steps were skipped");
}

TEST_F(Doctor, SparseRecords) {
  steps(1, 3);
  steps(1000, 1000);
  steps(5000, 5000);
  for (const uint64_t step : {1000, 5000}) at(step, "conv1.out") = {64, 0.3f, 0};
  const Diagnosis sick = found();
  EXPECT_EQ(sick.subject->name, "conv1.out");
  EXPECT_EQ(sick.subject->since, 1000u);
  EXPECT_EQ(sick.subject->before.size(), 4u);
  ASSERT_EQ(sick.overflows.size(), 1u);
  const std::vector<double>& over_time = sick.overflows[0].over_time;
  ASSERT_EQ(over_time.size(), Diagnosis::kColumns);
  EXPECT_EQ(over_time[0], 0);
  EXPECT_EQ(over_time[1], -1) << "nothing recorded";
  EXPECT_NEAR(over_time[4], 0.3, 1e-6);
  EXPECT_NEAR(over_time[23], 0.3, 1e-6);
  EXPECT_NEAR(sick.overflows[0].mean, 0.6 / 5, 1e-6);
}

TEST_F(Doctor, OneStep) {
  steps(1, 1);
  at(1, "conv1.out") = {64, 0.3f, 0};
  const Diagnosis sick = found();
  EXPECT_EQ(sick.condition, Condition::forward_overflow);
  EXPECT_EQ(sick.subject->before.size(), 1u);
  EXPECT_EQ(sick.overflows[0].over_time.size(), 1u);
}

}  // namespace
}  // namespace ulp
