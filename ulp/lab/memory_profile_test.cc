// Memory over time of a small dummy model, and what the papers say about bytes a parameter.
#include "ulp/lab/memory_profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/classification.h"

namespace ulp {
namespace {

// One thread: on so small a model several would wait for each other longer than they work, and each
// has a workspace.
MemoryProfiles profile_on_one_thread(int64_t parameters, int64_t batch, int64_t steps,
                                     const MemoryProgress& progress, const std::atomic<bool>& stop) {
  const int threads = thread_count();
  set_thread_count(1);
  MemoryProfiles result = profile_memory(dummy_model(parameters, batch), steps, progress, stop);
  set_thread_count(threads);
  return result;
}

MemoryProfiles profiles(int64_t steps) {
  return profile_on_one_thread(
      2'000'000, 8, steps, [](size_t, size_t) {}, false);
}

double less(size_t bytes, size_t than) { return 1 - static_cast<double>(bytes) / static_cast<double>(than); }

double share(const MemoryProfile& profile, MemoryUse use) {
  return profile.per_parameter(profile.peak().bytes[static_cast<size_t>(use)]);
}

TEST(MemoryProfile, IsWhatWasPlannedAndAllocated) {
  const MemoryProfiles result = profiles(2);
  ASSERT_TRUE(result.complete);
  ASSERT_EQ(result.profiles.size(), memory_schemes().size());
  for (const MemoryProfile& profile : result.profiles) {
    EXPECT_EQ(profile.allocated_peak, profile.planned_peak) << profile.scheme->name;
    // Copies that go one by one while gradients twice their size come leave gaps.
    if (profile.scheme->copies == MemoryScheme::Copies::to_last_use) {
      EXPECT_LE(profile.peak().total(), profile.planned_peak);
      EXPECT_NEAR(less(profile.peak().total(), profile.planned_peak), 0, 0.01);
    } else {
      EXPECT_EQ(profile.peak().total(), profile.planned_peak) << profile.scheme->name;
    }
    // It is a training: the same numbers are fitted, ever better.
    ASSERT_EQ(profile.losses.size(), 2u);
    EXPECT_TRUE(std::isfinite(profile.losses[0])) << profile.scheme->name;
    EXPECT_LT(profile.losses[1], profile.losses[0]) << profile.scheme->name;
  }
}

TEST(MemoryProfile, IsHalvedByExtraBitsAndFusing) {
  const MemoryProfiles result = profiles(1);
  const MemoryProfile &mixed = result.profiles[0], &dropped = result.profiles[1], &wide = result.profiles[2],
                      &narrow = result.profiles[3];
  EXPECT_GE(less(wide.planned_peak, mixed.planned_peak), 0.45);
  EXPECT_GE(less(narrow.planned_peak, mixed.planned_peak), 0.60);
  EXPECT_GE(less(wide.allocated_peak, mixed.allocated_peak), 0.45);
  EXPECT_GE(less(narrow.allocated_peak, mixed.allocated_peak), 0.60);
  // 4 + 2 + 4 + 4, and 2 + 1 + 4 or 2; gradients of one layer.
  EXPECT_NEAR(share(mixed, MemoryUse::weights), 4, 0.01);
  EXPECT_NEAR(share(mixed, MemoryUse::copies), 2, 0.01);
  EXPECT_NEAR(share(mixed, MemoryUse::momentum), 4, 0.01);
  EXPECT_NEAR(share(mixed, MemoryUse::gradients), 4, 0.05);
  EXPECT_LT(share(dropped, MemoryUse::copies), 0.1);
  for (const MemoryProfile* split : {&wide, &narrow}) {
    EXPECT_NEAR(share(*split, MemoryUse::weights), 2, 0.01);
    EXPECT_NEAR(share(*split, MemoryUse::extra_bits), 1, 0.01);
    EXPECT_EQ(share(*split, MemoryUse::copies), 0);
    EXPECT_LT(share(*split, MemoryUse::gradients), 0.1);
  }
  EXPECT_NEAR(share(wide, MemoryUse::momentum), 4, 0.01);
  EXPECT_NEAR(share(narrow, MemoryUse::momentum), 2, 0.01);
}

TEST(MemoryProfile, IsReported) {
  const MemoryProfiles result = profiles(2);
  size_t moments = 0;
  for (const MemoryProfile& profile : result.profiles) moments += 2 * profile.moments.size();
  const std::string csv = memory_csv(result);
  EXPECT_EQ(static_cast<size_t>(std::count(csv.begin(), csv.end(), '\n')), moments + 1);
  const std::string svg = memory_svg(result);
  EXPECT_NE(svg.find(">fp16 copies<"), svg.npos);
  EXPECT_NE(svg.find(">fp16+8, bf16 momentum<"), svg.npos);
  const std::string text = memory_text(result);
  EXPECT_NE(text.find("4 weights + 4 momentum + 2 fp16 copies + 4 gradients = 14 bytes"), text.npos) << text;
  EXPECT_NE(text.find("2 weights + 1 extra bits + 4 momentum = 7 bytes"), text.npos) << text;
  EXPECT_NE(text.find("2 weights + 1 extra bits + 2 momentum = 5 bytes"), text.npos) << text;
}

TEST(MemoryProfile, StopsAfterAStep) {
  std::atomic<bool> stop = false;
  const MemoryProfiles result = profile_on_one_thread(
      100'000, 1, 3, [&](size_t done, size_t) { stop = done == 4; }, stop);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.profiles.size(), 2u);
  EXPECT_EQ(result.profiles.back().losses.size(), 1u);
}

TEST(MemoryProfile, RefusesWhatIsNoModel) {
  EXPECT_NEAR(static_cast<double>(dummy_model(200'000'000, 8).parameters()), 200e6, 2e6);
  EXPECT_THROW(dummy_model(1000, 8), Error);
  EXPECT_THROW(dummy_model(int64_t{1} << 50, 8), Error);
  EXPECT_THROW(dummy_model(1'000'000, 0), Error);
  EXPECT_THROW(profile_memory(
                   dummy_model(100'000, 1), 0, [](size_t, size_t) {}, false),
               Error);
  // Planned, and seen not to fit, before anything is allocated.
  EXPECT_THROW(profile_memory(
                   dummy_model(50'000'000'000, 1), 1, [](size_t, size_t) {}, false),
               Error);
}

// Weights and optimizer state of resnet18.
double bytes_per_parameter(OptimizerKind kind, const std::string& rule, const std::string& weight,
                           const std::string& state) {
  EngineOptions options;
  options.build = classifier_build({.name = "resnet18"});
  options.batch = {2};
  options.optimizer.kind = kind;
  options.precision.updates.rule = parse_update_rule(rule);
  options.precision.updates.weight = parse_weight_format(weight);
  options.precision.updates.state = parse_state_format(state);
  return Engine(options).bytes_per_parameter();
}

// Appendix B.2 of the BF16 paper, for weights and the state of Adam: 2 + 2 + 4 bytes take 33% less
// than 4 + 8, and 43% less than mixed precision, which has a 16-bit copy of each weight beside
// that.
TEST(BytesPerParameter, AdamWithKahanTakesAThirdLessThanFp32) {
  const double kahan = bytes_per_parameter(OptimizerKind::adam, "kahan", "bf16", "bf16"),
               fp32 = bytes_per_parameter(OptimizerKind::adam, "master", "fp32", "fp32");
  EXPECT_NEAR(kahan, 8, 0.01);
  EXPECT_NEAR(fp32, 12, 0.01);
  EXPECT_NEAR(1 - kahan / fp32, 0.33, 0.005);
  const double copies = share(profiles(1).profiles.front(), MemoryUse::copies);
  EXPECT_NEAR(1 - kahan / (fp32 + copies), 0.43, 0.005);
}

TEST(BytesPerParameter, AdamWInEightBits) {
  EXPECT_LE(bytes_per_parameter(OptimizerKind::adamw, "stochastic", "bf16", "8bit"), 4.05);
  EXPECT_LE(bytes_per_parameter(OptimizerKind::adamw, "extra:8", "bf16", "8bit"), 5.05);
}

}  // namespace
}  // namespace ulp
