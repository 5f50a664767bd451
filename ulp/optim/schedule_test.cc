// Schedules against their closed forms, their text both ways, and text that is wrong.
#include "ulp/optim/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

#include "ulp/base/error.h"

namespace ulp {
namespace {

constexpr double kBase = 0.1;
constexpr uint64_t kEpoch = 50, kTotal = 500;

double at(const Schedule& s, uint64_t step) { return rate(s, kBase, step, kEpoch, kTotal); }

Schedule warmed(std::string_view schedule, std::string_view warmup) {
  Schedule s = parse_schedule(schedule);
  s.warmup = parse_warmup(warmup);
  return s;
}

TEST(Schedule, ConstantIsTheBaseRate) {
  for (const uint64_t step : {uint64_t{0}, uint64_t{1}, kTotal - 1, kTotal, uint64_t{1} << 40}) {
    EXPECT_EQ(at(Schedule{}, step), kBase);
  }
}

TEST(Schedule, StepFallsAfterEachPeriod) {
  const Schedule s = parse_schedule("step:3:0.5");
  for (uint64_t step = 0; step < kTotal; ++step) {
    EXPECT_DOUBLE_EQ(at(s, step), kBase / static_cast<double>(1 << (step / kEpoch / 3))) << step;
  }
  EXPECT_EQ(at(s, 149), kBase);
  EXPECT_EQ(at(s, 150), kBase / 2);
}

TEST(Schedule, MultiStepFallsAtItsMilestones) {
  const Schedule s = parse_schedule("multi-step:2,3,7:0.1");
  EXPECT_EQ(at(s, 99), kBase);
  EXPECT_DOUBLE_EQ(at(s, 100), kBase * 0.1);
  EXPECT_DOUBLE_EQ(at(s, 149), kBase * 0.1);
  EXPECT_DOUBLE_EQ(at(s, 150), kBase * 0.01);
  EXPECT_DOUBLE_EQ(at(s, 349), kBase * 0.01);
  EXPECT_DOUBLE_EQ(at(s, 350), kBase * 0.001);
  EXPECT_DOUBLE_EQ(at(s, kTotal), kBase * 0.001);
}

TEST(Schedule, CosineIsHalfAWaveOverAllSteps) {
  const Schedule s = parse_schedule("cosine");
  for (uint64_t step = 0; step <= kTotal; ++step) {
    const double expected =
        kBase * 0.5 * (1 + std::cos(std::numbers::pi * static_cast<double>(step) / kTotal));
    EXPECT_NEAR(at(s, step), expected, 1e-16) << step;
    if (step > 0) {
      EXPECT_LT(at(s, step), at(s, step - 1)) << step;
    }
  }
  EXPECT_EQ(at(s, 0), kBase);
  EXPECT_DOUBLE_EQ(at(s, kTotal / 2), kBase / 2);
  EXPECT_EQ(at(s, kTotal), 0);
  EXPECT_EQ(at(s, kTotal + 1000), 0);
}

TEST(Schedule, FloorsAreFactorsOnTheBaseRate) {
  const Schedule cosine = parse_schedule("cosine:0.2"), linear = parse_schedule("linear:0.2");
  for (const Schedule& s : {cosine, linear}) {
    EXPECT_DOUBLE_EQ(at(s, 0), kBase);
    EXPECT_DOUBLE_EQ(at(s, kTotal / 2), kBase * 0.6);
    EXPECT_DOUBLE_EQ(at(s, kTotal), kBase * 0.2);
    EXPECT_DOUBLE_EQ(at(s, 10 * kTotal), kBase * 0.2);
  }
  EXPECT_DOUBLE_EQ(at(linear, 100), kBase * (1 - 0.8 * 0.2));
}

TEST(Schedule, WarmupSpacesItsStepsEvenlyWithoutTheEnds) {
  const Schedule s = warmed("constant", "4");
  for (const uint64_t step : {0, 1, 2, 3}) {
    EXPECT_DOUBLE_EQ(at(s, step), kBase * static_cast<double>(step + 1) / 5) << step;
  }
  EXPECT_EQ(at(s, 4), kBase);
  const Schedule from = warmed("constant", "1:0.5");
  EXPECT_DOUBLE_EQ(at(from, 0), kBase * 0.75);
  EXPECT_EQ(at(from, 1), kBase);
  EXPECT_EQ(at(warmed("constant", "0"), 0), kBase);
}

TEST(Schedule, WarmupInEpochsFollowsTheirLength) {
  EXPECT_EQ(parse_warmup("5e").steps(390), 1950u);
  EXPECT_EQ(parse_warmup("0.5e").steps(391), 196u);
  EXPECT_EQ(parse_warmup("5").steps(390), 5u);
  EXPECT_DOUBLE_EQ(at(warmed("constant", "2e"), 49), kBase * 50 / 101);
}

TEST(Schedule, WavesAndLinesUseTheStepsAfterTheWarmup) {
  for (const char* name : {"cosine:0.2", "linear:0.2"}) {
    const Schedule s = warmed(name, "2e");
    EXPECT_EQ(at(s, 100), kBase);
    EXPECT_DOUBLE_EQ(at(s, 300), kBase * 0.6);
    EXPECT_DOUBLE_EQ(at(s, kTotal), kBase * 0.2);
  }
}

TEST(Schedule, MilestonesCountFromTheStartOfTheRun) {
  const Schedule s = warmed("multi-step:2:0.5", "1e");
  EXPECT_LT(at(s, 49), kBase);
  EXPECT_EQ(at(s, 50), kBase);
  EXPECT_EQ(at(s, 99), kBase);
  EXPECT_DOUBLE_EQ(at(s, 100), kBase / 2);
}

TEST(Schedule, WarmupMayOutlastTheRun) {
  const Schedule s = warmed("cosine", "1000");
  EXPECT_DOUBLE_EQ(at(s, 999), kBase * 1000 / 1001);
  EXPECT_EQ(at(s, 1000), 0);
}

TEST(Schedule, TextComesBack) {
  for (const char* text : {"constant", "step:30:0.1", "multi-step:100,150:0.1", "multi-step:7:1", "cosine",
                           "cosine:0.01", "linear", "linear:0.5", "cosine:1e-05"}) {
    EXPECT_EQ(schedule_text(parse_schedule(text)), text);
  }
  for (const char* text : {"0", "500", "5e", "0.5e", "5e:0.1", "10:1"}) {
    EXPECT_EQ(warmup_text(parse_warmup(text)), text);
  }
  EXPECT_EQ(parse_schedule("cosine:1e-3"), parse_schedule("cosine:.001"));
  EXPECT_EQ(parse_warmup("1e3"), parse_warmup("1000"));
  for (const double factor : {1.0 / 3, 0.1, 1e-300, 0.99999999999}) {
    Schedule s{.kind = ScheduleKind::step, .epochs = {7}, .factor = factor};
    EXPECT_EQ(parse_schedule(schedule_text(s)), s);
    const Warmup w{.length = factor * 1e17, .in_epochs = true, .start = factor};
    if (w.length < 0x1p53) {
      EXPECT_EQ(parse_warmup(warmup_text(w)), w);
    }
  }
}

std::string error_of(auto&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Schedule, WrongTextNamesTheForms) {
  for (const char* text : {"",
                           "Cosine",
                           "cos",
                           "constant:1",
                           "step",
                           "step:",
                           "step:3",
                           "step:0:0.1",
                           "step:3:0",
                           "step:3:1.5",
                           "step:3:-1",
                           "step:3,4:0.1",
                           "step:3:0.1:2",
                           "step:1.5:0.1",
                           "multi-step:0.1",
                           "multi-step::0.1",
                           "multi-step:5,5:0.1",
                           "multi-step:9,5:0.1",
                           "multi-step:5,:0.1",
                           "multi-step:99999999999:0.1",
                           "cosine:1",
                           "cosine:-0.1",
                           "cosine:nan",
                           "cosine:inf",
                           "cosine:0.1:2",
                           "cosine:",
                           "linear:x",
                           "cosine: 0.1",
                           "cosine:0.1 ",
                           "step:3:0x1"}) {
    const std::string error = error_of([&] { parse_schedule(text); });
    EXPECT_NE(error.find("multi-step:E1,E2,..:FACTOR"), std::string::npos) << "'" << text << "': " << error;
    EXPECT_NE(error.find(fmt::format("'{}'", text)), std::string::npos) << error;
  }
  for (const char* text : {"", "e", "-5", "x", "1.5", "5ee", "5 e", "5e:", "5e:2", "5e:-1", "5e:0:1", "inf",
                           "nan", "infe", "1e300", "1e999"}) {
    const std::string error = error_of([&] { parse_warmup(text); });
    EXPECT_NE(error.find("EPOCHSe[:START]"), std::string::npos) << "'" << text << "': " << error;
  }
}

TEST(Schedule, NonsenseMadeByHandIsRefused) {
  EXPECT_THROW(rate(Schedule{}, kBase, 0, 0, kTotal), Error);
  EXPECT_THROW(at(Schedule{.kind = ScheduleKind::step}, 0), Error);
  EXPECT_THROW(at(Schedule{.kind = ScheduleKind::step, .epochs = {0}}, 0), Error);
  EXPECT_THROW(at(Schedule{.warmup = {.length = -1}}, 0), Error);
  EXPECT_THROW(at(Schedule{.warmup = {.length = std::nan("")}}, 0), Error);
}

}  // namespace
}  // namespace ulp
