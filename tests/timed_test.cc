// `ulp bench` on a device that is not the host: the same step as on the CPU, each of its kernels
// timed once a run, and the same updates.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/support/fake_device.h"
#include "ulp/lab/step_bench.h"
#include "ulp/lab/update_bench.h"

namespace ulp {
namespace {

// Counts, and takes every run of a step to last a millisecond.
class CountingClock : public PlanClock {
 public:
  void begin(size_t step, CUstream_st* stream) override {
    EXPECT_NE(stream, nullptr);
    EXPECT_FALSE(std::exchange(open_, true));
    if (step >= times_.size()) times_.resize(step + 1);
  }
  void end(size_t step, CUstream_st* /*stream*/) override {
    EXPECT_TRUE(std::exchange(open_, false));
    times_[step].seconds += 1e-3;
    ++times_[step].runs;
  }
  std::vector<PlanStepTime> take() override { return std::exchange(times_, {}); }

 private:
  bool open_ = false;
  std::vector<PlanStepTime> times_;
};

std::unique_ptr<PlanClock> counting_clock() { return std::make_unique<CountingClock>(); }
size_t seven_bytes() { return 7; }

uint64_t calls(const StepBench& bench) {
  uint64_t sum = 0;
  for (const KernelTime& kernel : bench.kernels) sum += kernel.calls;
  return sum;
}

void add_device() {
  fake_device::add();
  if (find_bench_device("fake") == nullptr) add_bench_device({"fake", nullptr, counting_clock, seven_bytes});
}

TEST(StepBench, TimesEveryKernelOnADevice) {
  add_device();
  for (const char* policy : {"fp32", "amp:fp16"}) {
    for (const int64_t pieces : {1, 2}) {
      StepBenchOptions options;
      options.config.model = "resnet8";
      options.config.batch = 4;
      options.config.policy = policy;
      options.config.grad_accum = pieces;
      options.config.threads = 1;
      options.config.lr = 0.1;  // so that the loss tells of updates, too
      options.steps = 3;
      options.profile_steps = 3;
      const StepBench host = bench_step(options);
      options.config.device = "fake";
      const StepBench there = bench_step(options);
      EXPECT_EQ(there.loss, host.loss);
      // There images and labels are made of resident data, from numbers that are fed.
      EXPECT_EQ(there.kernels.size(), host.kernels.size() + 1);
      EXPECT_EQ(calls(there), calls(host) + static_cast<uint64_t>(pieces));
      double seconds = 0, bytes = 0;
      for (const KernelTime& kernel : there.kernels) {
        seconds += kernel.seconds;
        bytes += kernel.bytes;
      }
      EXPECT_NEAR(seconds, 1e-3 * static_cast<double>(calls(there)), 1e-9);
      EXPECT_EQ(bytes, there.work.bytes);
      EXPECT_EQ(there.allocated_bytes, there.planned_bytes);
      EXPECT_EQ(there.device_bytes, 7u);
      EXPECT_FALSE(there.ceilings);
    }
  }
}

TEST(UpdateBench, TimesUpdatesOnADevice) {
  add_device();
  for (const char* rule : {"master", "extra:16", "plain"}) {
    UpdateBenchOptions options;
    options.config.optimizer = "adamw";
    options.config.lr = 1e-4;
    options.config.update = rule;
    options.config.threads = 1;
    options.gradient = "bf16";
    options.elements = 10000;
    options.tensors = 3;
    options.steps = 4;
    const UpdateBench host = bench_update(options);
    options.config.device = "fake";
    const UpdateBench there = bench_update(options);
    EXPECT_EQ(there.seconds, std::vector<double>(4, 1e-3));
    EXPECT_EQ(there.counts, host.counts);
    EXPECT_EQ(there.counts.updates, 10000u);
    EXPECT_EQ(there.bytes, host.bytes);
    EXPECT_FALSE(there.ceilings);
  }
}

}  // namespace
}  // namespace ulp
