#include "ulp/run/sensitivity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/run/setup.h"

namespace ulp {
namespace {

RunConfig small(const char* model = "lenet") {
  RunConfig config;
  config.model = model;
  config.data = "synthetic";
  config.image_shape = "1x28x28";
  config.subset = 64;
  config.batch = 8;
  config.steps = 20;
  config.epochs = 0;
  return config;
}

std::unique_ptr<LearningTask> task_of(const RunConfig& config) { return make_task(task_options(config)); }

TEST(Sensitivity, NoGroupLowIsNoError) {
  for (const char* model : {"lenet", "resnet8"}) {
    const RunConfig config = small(model);
    const std::unique_ptr<LearningTask> task = task_of(config);
    GradientErrors errors(config, *task, {.batches = 1, .warmup = 2});
    errors.prepare();
    EXPECT_EQ(errors.of({}), 0) << model;
    const double one = errors.of({1});
    EXPECT_GT(one, 0) << model;
    EXPECT_LT(one, 1) << model;
    // Neither weights nor statistics have moved.
    EXPECT_EQ(errors.of({}), 0) << model;
    EXPECT_EQ(errors.of({1}), one) << model;
  }
}

TEST(Sensitivity, EachGroupByItselfAndDeterministic) {
  const RunConfig config = small();
  const std::unique_ptr<LearningTask> task = task_of(config);
  size_t calls = 0, last = 0, total = 0;
  const Sensitivities made =
      measure_sensitivities(config, *task, {.batches = 2, .warmup = 3}, [&](size_t done, size_t all) {
        ++calls;
        EXPECT_GT(done, last);
        last = done;
        total = all;
      });
  EXPECT_EQ(last, total);
  EXPECT_GT(calls, 5u);
  EXPECT_EQ(made.network, task->id().items());
  EXPECT_EQ(made.network.front().second, "\"lenet\"");
  EXPECT_EQ(made.candidates, "hfp8");
  ASSERT_EQ(made.errors.size(), made.elements.size());
  for (const double error : made.errors) {
    EXPECT_TRUE(std::isfinite(error));
    EXPECT_GT(error, 0);
  }
  EXPECT_EQ(measure_sensitivities(config, *task, {.batches = 2, .warmup = 3}), made);
  GradientErrors errors(config, *task, {.batches = 2, .warmup = 3});
  errors.prepare();
  EXPECT_EQ(errors.of({2}), made.errors[2]);
}

TEST(Sensitivity, FewerBitsAreWorseAndTheSameFormatIsNoError) {
  RunConfig config = small();
  const std::unique_ptr<LearningTask> task = task_of(config);
  const auto first = [&](const char* lo, const char* lo_grad) {
    config.hi = "bf16";
    config.lo = lo;
    config.lo_grad = lo_grad;
    GradientErrors errors(config, *task, {.batches = 1, .warmup = 2});
    errors.prepare();
    return errors.of({0, 1, 2, 3});
  };
  EXPECT_EQ(first("bf16", "bf16"), 0);
  const double eight = first("e4m3", "e5m2"), four = first("e2m1", "e3m0");
  EXPECT_GT(eight, 0);
  EXPECT_GT(four, 2 * eight);
}

TEST(Sensitivity, WhatDoesNotFitShowsAsError) {
  // At a loss scale of 2^24 e4m3, which ends at 448, cuts many gradients off; fp32 holds them.
  RunConfig config = small();
  config.hi = "fp32";
  config.lo_grad = "e4m3";
  const std::unique_ptr<LearningTask> task = task_of(config);
  const auto error = [&](const char* scale) {
    config.loss_scale = scale;
    GradientErrors errors(config, *task, {.batches = 1, .warmup = 0});
    errors.prepare();
    EXPECT_EQ(errors.loss_scale(), std::stod(scale));
    return errors.of({3});
  };
  EXPECT_GT(error("16777216"), 0.3);
  EXPECT_LT(error("1024"), 0.1);
}

TEST(Sensitivity, WeightsThatAreStoredLowComeBack) {
  RunConfig config = small();
  config.update = "plain";
  config.weight = "assigned";
  const std::unique_ptr<LearningTask> task = task_of(config);
  GradientErrors errors(config, *task, {.batches = 1, .warmup = 2});
  errors.prepare();
  const double one = errors.of({1});
  errors.of({0, 1, 2, 3});
  EXPECT_EQ(errors.of({1}), one);
  EXPECT_EQ(errors.of({}), 0);
}

TEST(Sensitivity, BadOptionsAreRefused) {
  const RunConfig config = small();
  const std::unique_ptr<LearningTask> task = task_of(config);
  EXPECT_THROW(measure_sensitivities(config, *task, {.batches = 0, .warmup = 1}), Error);
  EXPECT_THROW(measure_sensitivities(config, *task, {.batches = 1, .warmup = -1}), Error);
}

TEST(Pilot, TrainsTheRunsSteps) {
  const RunConfig config = small();
  const std::unique_ptr<LearningTask> task = task_of(config);
  Pilot pilot(config, *task, {.tests = true});
  EXPECT_EQ(pilot.total_steps(), 20u);
  pilot.engine().set_assignment(pilot.low({0, 2}));
  pilot.train(20);
  const double accuracy = pilot.score();
  EXPECT_GE(accuracy, 0);
  EXPECT_LE(accuracy, 1);
  Pilot again(config, *task, {.tests = true});
  again.engine().set_assignment(again.low({0, 2}));
  again.train(7);
  again.train(13);
  EXPECT_EQ(again.score(), accuracy);
}

}  // namespace
}  // namespace ulp
