// Updates, timed: what they move, what is reported, and what is refused.
#include "ulp/lab/update_bench.h"

#include <gtest/gtest.h>

#include <string>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/io/metrics.h"

namespace ulp {
namespace {

UpdateBenchOptions small(const std::string& optimizer = "adamw") {
  UpdateBenchOptions options;
  options.config.optimizer = optimizer;
  options.config.lr = 1e-3;
  options.config.threads = 1;
  options.elements = 10240;
  options.warmup_steps = 1;
  options.steps = 4;
  return options;
}

UpdateBench run(const UpdateBenchOptions& options) {
  const int threads = thread_count();
  UpdateBench bench = bench_update(options);
  set_thread_count(threads);
  return bench;
}

TEST(UpdateBench, MeasuresAnUpdate) {
  const UpdateBench bench = run(small());
  EXPECT_EQ(bench.seconds.size(), 4u);
  EXPECT_GT(bench.least_seconds, 0);
  EXPECT_LE(bench.least_seconds, bench.median_seconds);
  EXPECT_LE(bench.median_seconds, bench.most_seconds);
  EXPECT_EQ(bench.threads, 1);
  EXPECT_EQ(bench.weight, "fp32");
  EXPECT_EQ(bench.rule, "master");
  EXPECT_EQ(bench.counts.updates, 10240u);
  EXPECT_LT(bench.counts.cancelled, 100u);
  ASSERT_TRUE(bench.ceilings);
  EXPECT_GT(bench.ceilings->copy_gbs, 0);
}

TEST(UpdateBench, CountsWhatIsReadAndWritten) {
  const auto each = [](const std::string& optimizer, const std::string& rule, const std::string& weight,
                       const std::string& gradient, const std::string& state) {
    UpdateBenchOptions options = small(optimizer);
    options.config.update = rule;
    options.config.weight = weight;
    options.config.state = state;
    if (optimizer == "sgd") options.config.momentum = 0.9;
    options.gradient = gradient;
    options.tensors = 5;
    const UpdateBench bench = run(options);
    EXPECT_EQ(bench.counts.updates, 10240u);
    return bench.bytes / 10240;
  };
  EXPECT_EQ(each("adamw", "default", "default", "fp32", "fp32"), 28);
  EXPECT_EQ(each("adamw", "extra:16", "bf16", "bf16", "bf16"), 18);
  EXPECT_EQ(each("adamw", "stochastic", "default", "bf16", "bf16"), 14);
  EXPECT_EQ(each("adam", "kahan", "default", "e5m2", "fp32"), 25);
  EXPECT_EQ(each("sgd", "default", "default", "fp32", "fp32"), 20);
  EXPECT_EQ(each("adagrad", "extra:8", "bf16", "bf16", "bf16"), 12);
}

TEST(UpdateBench, RunsOnOtherBackends) {
  UpdateBenchOptions options = small("sgd");
  options.config.device = "reference";
  options.gradient = "s2fp8";
  const UpdateBench bench = run(options);
  EXPECT_EQ(bench.kernel, "reference");
  EXPECT_EQ(bench.counts.updates, 10240u);
}

TEST(UpdateBench, IsReported) {
  UpdateBench bench = run(small());
  const Json json = Json::parse(update_bench_json(bench));
  EXPECT_EQ(json.at("optimizer"), "adamw");
  EXPECT_EQ(json.at("ms"), 1e3 * bench.median_seconds);
  EXPECT_EQ(json.at("bytes_moved"), 28 * 10240);
  EXPECT_EQ(json.at("gbs_share"), bench.gbs() / bench.ceilings->copy_gbs);
  const std::string text = update_bench_text(bench);
  for (const char* words : {"adamw on 10240 parameters in 1 tensor, update master", "ms (median of 4;",
                            "28 bytes a parameter", "of a copy's", "cancelled updates"}) {
    EXPECT_NE(text.find(words), text.npos) << words << " in\n" << text;
  }
  bench.ceilings.reset();
  EXPECT_TRUE(Json::parse(update_bench_json(bench)).at("ceilings").is_null());
  EXPECT_NE(update_bench_text(bench).find("not measured on this device"), std::string::npos);
}

TEST(UpdateBench, RefusesWhatCannotBeRun) {
  const auto refused = [](auto change, const std::string& words) {
    UpdateBenchOptions options = small();
    change(options);
    try {
      run(options);
      ADD_FAILURE() << "expected: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused([](UpdateBenchOptions& o) { o.steps = 0; }, "steps must be from 1");
  refused([](UpdateBenchOptions& o) { o.elements = 0; }, "elements must be from 1");
  refused([](UpdateBenchOptions& o) { o.tensors = 20000; }, "1 to 10240 tensors");
  refused([](UpdateBenchOptions& o) { o.gradient = "half"; }, "half");
  refused([](UpdateBenchOptions& o) { o.config.weight = "assigned"; }, "name a format");
  refused([](UpdateBenchOptions& o) { o.config.update = "extra:40"; }, "extra");
  refused([](UpdateBenchOptions& o) { o.config.device = "abacus"; }, "unknown device 'abacus'");
}

}  // namespace
}  // namespace ulp
