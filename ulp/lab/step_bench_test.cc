// A step of small models, timed: what is counted, what is reported, and what is refused.
#include "ulp/lab/step_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/io/metrics.h"

namespace ulp {
namespace {

StepBenchOptions small(const std::string& model = "lenet") {
  StepBenchOptions options;
  options.config.model = model;
  options.config.batch = 8;
  options.config.threads = 1;
  options.warmup_steps = 1;
  options.steps = 4;
  options.profile_steps = 2;
  return options;
}

StepBench run(const StepBenchOptions& options) {
  const int threads = thread_count();
  StepBench bench = bench_step(options);
  set_thread_count(threads);
  return bench;
}

TEST(StepBench, MeasuresAStep) {
  const StepBench bench = run(small());
  EXPECT_EQ(bench.seconds.size(), 4u);
  EXPECT_GT(bench.least_seconds, 0);
  EXPECT_LE(bench.least_seconds, bench.median_seconds);
  EXPECT_LE(bench.median_seconds, bench.most_seconds);
  EXPECT_DOUBLE_EQ(bench.examples_per_second, 8 / bench.median_seconds);
  EXPECT_EQ(bench.network.input, "3x32x32");
  EXPECT_EQ(bench.parameters, 62006u);
  EXPECT_EQ(bench.threads, 1);
  EXPECT_EQ(bench.skipped, 0);
  EXPECT_TRUE(std::isfinite(bench.loss));
  EXPECT_EQ(bench.allocated_bytes, bench.planned_bytes);
  ASSERT_TRUE(bench.ceilings);
  EXPECT_GT(bench.ceilings->copy_gbs, 0);
  EXPECT_GT(bench.ceilings->product_tflops, 0);
}

// A batch that is learned by heart would be timed with other numbers than training has.
TEST(StepBench, WeightsStayUnlessThereIsALearningRate) {
  StepBenchOptions options = small();
  options.warmup_steps = 0;
  options.profile_steps = 0;
  const double last = run(options).loss;
  options.config.lr = 0.1;
  const StepBench learned = run(options);
  EXPECT_LT(learned.loss, last);
  EXPECT_EQ(Json::parse(step_bench_json(learned)).at("lr"), 0.1);
  options.config.lr.reset();
  options.steps = 1;
  options.ceilings = false;
  const StepBench once = run(options);
  EXPECT_FALSE(once.ceilings);
  EXPECT_EQ(once.loss, last);
  EXPECT_EQ(Json::parse(step_bench_json(once)).at("lr"), 0);
}

// lenet by hand: every output element meets its weights' row, forward and for both gradients;
// nothing wants the gradient of the images.
TEST(StepBench, CountsOperationsOfAllPhases) {
  const double conv1 = 28 * 28 * 6 * 75, conv2 = 10 * 10 * 16 * 150, linear = 400 * 120 + 120 * 84 + 84 * 10;
  EXPECT_EQ(run(small()).work.operations, 2 * 8 * (2 * conv1 + 3 * conv2 + 3 * linear));
}

TEST(StepBench, MicroBatchesAndSecondGradientsAreNoMoreWork) {
  const StepBench whole = run(small());
  StepBenchOptions options = small();
  options.config.grad_accum = 4;
  const StepBench cut = run(options);
  EXPECT_EQ(cut.work.operations, whole.work.operations);
  options.config.fused_backward = true;
  options.config.clip_norm = 1;
  EXPECT_EQ(run(options).work.operations, whole.work.operations);
  options.config.grad_accum = 1;
  const StepBench twice = run(options);
  EXPECT_EQ(twice.work.operations, whole.work.operations);
  // But they take time, and more than one call.
  const auto calls = [](const StepBench& bench, std::string_view op) {
    uint64_t sum = 0;
    for (const KernelTime& kernel : bench.kernels) sum += kernel.op == op ? kernel.calls : 0;
    return sum;
  };
  EXPECT_EQ(calls(whole, "conv2d"), 2u);
  EXPECT_EQ(calls(cut, "conv2d"), 8u);
  EXPECT_EQ(calls(whole, "conv2d_grad_weight"), 2u);
  EXPECT_GT(calls(twice, "conv2d_grad_weight"), 2u);
}

TEST(StepBench, NarrowTensorsMoveFewerBytes) {
  StepBenchOptions options = small("resnet8");
  const double wide = run(options).work.bytes;
  options.config.policy = "size:1";
  const StepBench narrow = run(options);
  EXPECT_LT(narrow.work.bytes, 0.5 * wide);
  EXPECT_EQ(narrow.allocated_bytes, narrow.planned_bytes);
}

TEST(StepBench, KernelsAddUpToTheStep) {
  const StepBench bench = run(small("resnet8"));
  ASSERT_FALSE(bench.kernels.empty());
  double bytes = 0, operations = 0;
  for (size_t i = 0; i < bench.kernels.size(); ++i) {
    const KernelTime& kernel = bench.kernels[i];
    EXPECT_GT(kernel.seconds, 0) << kernel.op;
    EXPECT_GT(kernel.calls, 0u) << kernel.op;
    EXPECT_LE(kernel.seconds, bench.kernels[i == 0 ? 0 : i - 1].seconds);
    bytes += kernel.bytes;
    operations += kernel.operations;
  }
  EXPECT_EQ(bytes, bench.work.bytes);
  EXPECT_EQ(operations, bench.work.operations);
}

// What each format costs: products of one operator and kernel have a line for each pair of
// operands' formats.
TEST(StepBench, ProductsAreApartByFormat) {
  StepBenchOptions options = small("resnet8");
  options.config.policy = "size:0.5";
  const StepBench bench = run(options);
  std::set<std::string> forward;
  uint64_t calls = 0;
  for (const KernelTime& kernel : bench.kernels) {
    EXPECT_EQ(kernel.formats.empty(), kernel.operations == 0) << kernel.op;
    if (kernel.op != "conv2d") continue;
    forward.insert(kernel.formats);
    calls += kernel.calls;
  }
  EXPECT_TRUE(forward.contains("fp(4,3,4) x fp(4,3,4)") || forward.contains("fp(6,9,0) x fp(6,9,0)"));
  EXPECT_GE(forward.size(), 2u);
  EXPECT_EQ(calls, 9u);
  const Json json = Json::parse(step_bench_json(bench));
  EXPECT_EQ(json.at("kernels").at(0).at("operands"), bench.kernels[0].formats);
}

TEST(StepBench, IsReported) {
  const StepBench bench = run(small());
  const Json json = Json::parse(step_bench_json(bench));
  EXPECT_EQ(json.at("model"), "lenet");
  EXPECT_EQ(json.at("ms"), 1e3 * bench.median_seconds);
  EXPECT_EQ(json.at("allocated_peak_bytes"), bench.allocated_bytes);
  EXPECT_TRUE(json.at("device_peak_bytes").is_null());
  EXPECT_EQ(json.at("kernels").size(), bench.kernels.size());
  EXPECT_EQ(json.at("tflops_share"), bench.tflops() / bench.ceilings->product_tflops);
  const std::string text = step_bench_text(bench);
  for (const char* words : {"lenet at width 1, 62006 parameters", "ms (median of 4;", "peak, planned", "GB/s",
                            "of a copy's", "| conv2d_grad_weight"}) {
    EXPECT_NE(text.find(words), text.npos) << words << " in\n" << text;
  }
  StepBench nan = bench;
  nan.loss = std::nan("");
  nan.ceilings.reset();
  nan.kernels.clear();
  EXPECT_TRUE(Json::parse(step_bench_json(nan)).at("loss").is_null());
  EXPECT_TRUE(Json::parse(step_bench_json(nan)).at("ceilings").is_null());
  EXPECT_NE(step_bench_text(nan).find("not measured"), std::string::npos);
}

TEST(StepBench, RefusesWhatCannotBeRun) {
  const auto refused = [](auto change, const std::string& words) {
    StepBenchOptions options = small();
    change(options);
    try {
      run(options);
      ADD_FAILURE() << "expected: " << words;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused([](StepBenchOptions& o) { o.steps = 0; }, "steps must be from 1");
  refused([](StepBenchOptions& o) { o.warmup_steps = -1; }, "warm-up steps must be from 0");
  refused([](StepBenchOptions& o) { o.classes = 1; }, "two classes");
  refused([](StepBenchOptions& o) { o.config.grad_accum = 3; }, "grad_accum must divide batch");
  refused([](StepBenchOptions& o) { o.config.device = "abacus"; }, "unknown device 'abacus'");
  refused([](StepBenchOptions& o) { o.config.loss_scale = "auto"; }, "give a factor");
  EXPECT_EQ(find_bench_device("abacus"), nullptr);
  EXPECT_THROW(add_bench_device({"cpu"}), std::logic_error);
}

}  // namespace
}  // namespace ulp
