#include "ulp/report/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/temp.h"

namespace ulp {
namespace {

using Values = std::vector<double>;

Difference of(const Values& a, const Values& b, bool higher = true) {
  return difference_of(a, b, a, b, higher);
}

// By hand: means 91 and 92, squares 2 and 2 about them, degrees 2 and 2: s = 1, h = 1.7 sqrt(2/3).
TEST(Difference, ByHand) {
  const Difference found = of({90, 91, 92}, {91, 92, 93});
  EXPECT_DOUBLE_EQ(*found.d, 1);
  EXPECT_DOUBLE_EQ(*found.s, 1);
  EXPECT_NEAR(*found.h, 1.3880441875771342, 1e-12);
  EXPECT_EQ(found.verdict, Verdict::not_decided);
  // Half of it between seeds, and it is decided.
  const Difference sharp = of({90.5, 91, 91.5}, {91.5, 92, 92.5});
  EXPECT_DOUBLE_EQ(*sharp.s, 0.5);
  EXPECT_EQ(sharp.verdict, Verdict::better);
  EXPECT_EQ(of({91.5, 92, 92.5}, {90.5, 91, 91.5}).verdict, Verdict::worse);
  // Where less is better it is the other way round.
  EXPECT_EQ(of({90.5, 91, 91.5}, {91.5, 92, 92.5}, false).verdict, Verdict::worse);
  EXPECT_EQ(of({91.5, 92, 92.5}, {90.5, 91, 91.5}, false).verdict, Verdict::better);
}

// Sides of different sizes: squares 0.5 and 2, degrees 1 and 2: s = sqrt(2.5 / 3), h = 1.7 s sqrt(1/2 + 1/3).
TEST(Difference, SidesOfDifferentSizes) {
  const Difference found = of({1, 2}, {4, 5, 6});
  EXPECT_DOUBLE_EQ(*found.d, 3.5);
  EXPECT_NEAR(*found.s, 0.9128709291752769, 1e-12);
  EXPECT_NEAR(*found.h, 1.4166666666666667, 1e-12);
  EXPECT_EQ(found.verdict, Verdict::better);
  // One seed on one side: s is that of the other.
  const Difference one = of({5}, {1, 2});
  EXPECT_DOUBLE_EQ(*one.d, -3.5);
  EXPECT_NEAR(*one.s, std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(*one.h, 1.7 * std::sqrt(0.5) * std::sqrt(1.5), 1e-12);
  EXPECT_EQ(one.verdict, Verdict::worse);
}

TEST(Difference, WithoutSeedsNothingIsDecided) {
  const Difference one = of({0.1}, {0.9});
  EXPECT_DOUBLE_EQ(*one.d, 0.8);
  EXPECT_FALSE(one.s || one.h);
  EXPECT_EQ(one.verdict, Verdict::not_decided);
  EXPECT_FALSE(of({}, {1, 2}).d);
  EXPECT_EQ(of({}, {1, 2}).verdict, Verdict::not_decided);
  EXPECT_EQ(of({1, 1}, {1, 1}).verdict, Verdict::not_decided);
}

// A run that diverged counts in the mean and not in s.
TEST(Difference, Diverged) {
  const Difference found =
      difference_of(Values{90, 91, 92}, Values{10, 91, 92}, Values{90, 91, 92}, Values{91, 92}, true);
  EXPECT_NEAR(*found.d, 193.0 / 3 - 91, 1e-12);
  EXPECT_NEAR(*found.s, std::sqrt(2.5 / 3), 1e-12);
  EXPECT_NEAR(*found.h, 1.7 * std::sqrt(2.5 / 3) * std::sqrt(2.0 / 3), 1e-12);
  EXPECT_EQ(found.verdict, Verdict::worse);
}

RunRecord record(const std::string& policy, int seed, Number best) {
  RunConfig config;
  config.data = "synthetic";
  config.image_shape = "1x8x8";
  config.model = "mlp";
  config.batch = 16;
  config.subset = 64;
  config.policy = policy;
  config.seed = static_cast<uint64_t>(seed);
  RunRecord run;
  run.id = policy + "-s" + std::to_string(seed);
  run.folder = "runs/" + run.id;
  run.state = RunState::done;
  run.config = config;
  for (const ConfigField& field : config_fields()) run.settings.emplace_back(field.name, field.get(config));
  run.group = policy;
  run.model = {"1x8x8", 10};
  run.best = best;
  run.last_loss = 0.5;
  run.peak_bytes = policy == "fp32" ? 1000 : 600;
  run.epochs.epoch = {1, 2};
  run.epochs.train_loss = {0.9, 0.5};
  run.epochs.low_ratio = {0.25, 0.75};
  return run;
}

void set(RunRecord& run, const std::string& name, const std::string& value) {
  find_config_field(name).set(*run.config, value);
  for (auto& [key, text] : run.settings) {
    if (key == name) text = value;
  }
}

NamedRuns side(const std::string& policy, const Values& best) {
  NamedRuns named{"runs/" + policy, {}};
  for (size_t i = 0; i < best.size(); ++i) named.runs.push_back(record(policy, static_cast<int>(i), best[i]));
  return named;
}

TEST(CompareRuns, FiguresOfBothSides) {
  PlanBook book;
  NamedRuns b = side("size:1", {0.95, 0.96, 0.97});
  b.runs[0].promotions = {{8, "fc1.out", "fp(4,3,4)", "fp(6,9,0)", 0.02}};
  const Comparison found = compare_runs(side("fp32", {0.90, 0.91, 0.92}), b, book);
  ASSERT_EQ(found.settings.size(), 1u);
  EXPECT_EQ(found.settings[0].name + " " + found.settings[0].a + " " + found.settings[0].b,
            "policy fp32 size:1");
  EXPECT_EQ(found.a.seeds, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_NEAR(*found.a.best.mean(), 0.91, 1e-12);
  EXPECT_DOUBLE_EQ(*found.b.best.least(), 0.95);
  EXPECT_DOUBLE_EQ(*found.b.best.most(), 0.97);
  EXPECT_DOUBLE_EQ(*found.a.train_loss.mean(), 0.5);
  EXPECT_DOUBLE_EQ(*found.a.low_ratio.mean(), 0.5);
  EXPECT_DOUBLE_EQ(*found.b.peak_bytes.mean(), 600);
  EXPECT_DOUBLE_EQ(*found.b.promotions.most(), 1);
  EXPECT_LT(*found.b.aggregate_bits.mean(), *found.a.aggregate_bits.mean());
  EXPECT_FALSE(found.a.seconds.mean());
  EXPECT_EQ(found.difference.verdict, Verdict::better);
  EXPECT_EQ(found.notes, std::vector<std::string>{});
}

TEST(CompareRuns, WhatCannotBeCompared) {
  PlanBook book;
  const NamedRuns a = side("fp32", {0.9, 0.91});
  NamedRuns mixed = side("size:1", {0.9, 0.91});
  mixed.runs.push_back(record("uniform", 0, 0.5));
  EXPECT_SAYS(compare_runs(a, mixed, book), "2 groups: size:1 (2 runs), uniform (1 run)");
  EXPECT_SAYS(compare_runs(a, a, book), "on both sides");
  EXPECT_SAYS(compare_runs(a, {"runs/none", {}}, book), "runs/none holds no run");
  const auto changed = [](const char* name, const char* value) {
    NamedRuns other = side("size:1", {0.9, 0.91});
    for (RunRecord& run : other.runs) set(run, name, value);
    return other;
  };
  EXPECT_SAYS(compare_runs(a, changed("data", "cifar10"), book),
              "data is synthetic in runs/fp32-s0 and cifar10");
  EXPECT_SAYS(compare_runs(a, changed("task", "characters"), book), "task is classification");
  EXPECT_SAYS(compare_runs(a, changed("image_shape", "1x9x9"), book), "image_shape");
  NamedRuns other = side("size:1", {2.1, 2.2});
  for (RunRecord& run : other.runs) run.score = {"bpc", false};
  EXPECT_SAYS(compare_runs(a, other, book), "metric");
  NamedRuns broken = side("size:1", {0.9});
  broken.runs[0].config.reset();
  EXPECT_SAYS(compare_runs(a, broken, book), "config.toml");
}

TEST(CompareRuns, SaysWhatIsMissing) {
  PlanBook book;
  NamedRuns a = side("fp32", {0.9, 0.91, 0.92});
  a.runs[1].state = RunState::running;
  a.runs[1].best.reset();
  a.runs[2].folder = "runs/again";
  a.runs[2].id = "again";
  set(a.runs[2], "seed", "0");
  const Comparison found = compare_runs(a, side("size:1", {0.5}), book);
  ASSERT_EQ(found.notes.size(), 3u) << found.notes.back();
  EXPECT_NE(found.notes[0].find("fp32-s1 is running (epoch 2/10)"), std::string::npos) << found.notes[0];
  EXPECT_NE(found.notes[1].find("fp32-s1 has no accuracy"), std::string::npos) << found.notes[1];
  EXPECT_NE(found.notes[2].find("again has the seed of fp32-s0"), std::string::npos) << found.notes[2];
  EXPECT_EQ(found.a.best.values, Values{0.9});
  EXPECT_EQ(found.difference.verdict, Verdict::not_decided);
  EXPECT_EQ(seeds_to_decide(found), 0u);
}

// d 1, s 1: with n seeds each 1.7 sqrt(2/n) is below 1 from n = 6 on.
TEST(CompareRuns, HowManySeedsMore) {
  Comparison found;
  found.a.best.values = {90, 91, 92};
  found.b.best.values = {91, 92, 93};
  found.difference = of(found.a.best.values, found.b.best.values);
  EXPECT_EQ(seeds_to_decide(found), 3u);
  found.difference.d = 0;
  EXPECT_EQ(seeds_to_decide(found), 0u);
}

}  // namespace
}  // namespace ulp
