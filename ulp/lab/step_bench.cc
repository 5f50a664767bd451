#include "ulp/lab/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "ulp/backend/cpu/ceilings.h"
#include "ulp/backend/cuda/runtime/measure.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/philox.h"
#include "ulp/base/process.h"
#include "ulp/io/metrics.h"
#include "ulp/lab/rates.h"
#include "ulp/lab/table.h"
#include "ulp/precision/promotion.h"
#include "ulp/run/idle.h"
#include "ulp/run/setup.h"
#include "ulp/run/stepper.h"
#include "ulp/runtime/init.h"
#include "ulp/runtime/registry.h"

namespace ulp {
namespace {

std::unique_ptr<PlanClock> host_clock() { return std::make_unique<HostClock>(); }

std::vector<BenchDevice>& bench_devices() {
  static std::vector<BenchDevice> devices = {{"cpu", cpu_ceilings, host_clock, nullptr},
                                             {"reference", cpu_ceilings, host_clock, nullptr},
                                             {"cuda", cuda_ceilings, cuda_clock, cuda_used_bytes}};
  return devices;
}

constexpr double kMebi = 1 << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One batch of made-up examples, and an engine that is trained on it as a run trains it: with its
// loss scale and its look for tensors to promote. Unless the configuration has a learning rate it
// is 0: all is computed, weights stay. Otherwise the batch, always the same, is known by heart
// after some tens of steps, or tensors overflow that training would have promoted; kernels that are
// quick where nothing overflows are slower then, and the time depends on the number of steps.
class Bench {
 public:
  explicit Bench(const StepBenchOptions& options)
      : config_(options.config),
        task_(sketch_task(task_options(config_),
                          NetworkId{.input = options.input, .classes = options.classes})),
        batches_(task_->stream(Part::train)),
        batch_(batches_->next()),
        engine_(engine_options(config_, *task_)),
        stepper_(config_, engine_, UINT64_MAX) {
    if (stepper_.scaler().measured()) {
      fail("bench", "a loss scale that is measured on the data set needs one: give a factor, or dynamic");
    }
    task_->keep_data(engine_);
    engine_.allocate();
  }

  void step() {
    last_ = stepper_.train(batch_, config_.lr.value_or(0), progress_);
    promotable_ = stepper_.overflowed().size();
  }

  Engine& engine() { return engine_; }
  NetworkId id() const { return task_->id(); }
  double loss() const { return last_.mean(); }
  uint64_t updates() const { return progress_.updates; }
  size_t promotable() const { return promotable_; }

 private:
  const RunConfig config_;
  const std::unique_ptr<LearningTask> task_;
  const std::unique_ptr<BatchStream> batches_;
  const FeedBatch batch_;
  Engine engine_;
  Stepper stepper_;
  StepProgress progress_;
  StepResult last_;
  size_t promotable_ = 0;
};

void summarize(StepBench& result) {
  const RateSpread seconds = spread(result.seconds);
  result.median_seconds = seconds.median;
  result.least_seconds = seconds.least;
  result.most_seconds = seconds.most;
  result.examples_per_second = static_cast<double>(result.options.config.batch) / result.median_seconds;
}

}  // namespace

const BenchDevice* find_bench_device(std::string_view name) {
  for (const BenchDevice& device : bench_devices()) {
    if (device.name == name) return &device;
  }
  return nullptr;
}

void add_bench_device(const BenchDevice& device) {
  if (find_bench_device(device.name) != nullptr) {
    throw std::logic_error("there is a row for " + std::string(device.name) + " already");
  }
  bench_devices().push_back(device);
}

StepBench bench_step(const StepBenchOptions& options) {
  check(options.config);
  refuse_idle_options(options.config);
  check_count("warm-up steps", options.warmup_steps, 0);
  check_count("steps", options.steps, 1);
  check_count("profiled steps", options.profile_steps, 0);
  if (options.config.threads > 0) set_thread_count(static_cast<int>(options.config.threads));

  StepBench result;
  result.options = options;
  result.threads = thread_count();
  ResidentGrowth growth;
  Bench bench(options);
  result.network = bench.id();
  result.parameters = bench.engine().graph().parameters();
  for (int64_t i = 0; i < options.warmup_steps; ++i) bench.step();
  const uint64_t before = bench.updates();
  for (int64_t i = 0; i < options.steps; ++i) {
    const double begin = now();
    bench.step();
    result.seconds.push_back(now() - begin);
  }
  result.skipped = options.steps - static_cast<int64_t>(bench.updates() - before);
  result.loss = bench.loss();
  result.promotable = bench.promotable();
  summarize(result);
  // Before what else is measured takes memory of its own.
  growth.look();
  const BenchDevice* device = find_bench_device(options.config.device);
  result.planned_bytes = bench.engine().planned_peak_bytes();
  result.allocated_bytes = bench.engine().memory().peak();
  result.resident_bytes = growth.bytes();
  if (device != nullptr && device->used_bytes != nullptr) result.device_bytes = device->used_bytes();

  result.work = step_work(bench.engine().training_plan(), options.config.grad_accum);
  if (device == nullptr) return result;
  if (options.ceilings && device->ceilings != nullptr) result.ceilings = device->ceilings();
  if (options.profile_steps > 0 && device->clock != nullptr) {
    const std::unique_ptr<PlanClock> clock = device->clock();
    result.kernels = profile_steps(bench.engine(), *clock, options.profile_steps, [&bench] { bench.step(); });
  }
  return result;
}

namespace {

std::string mebi_text(size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMebi); }

std::string kernels_text(const StepBench& bench) {
  TextTable table;
  table.columns = {{"operator", true}, {"kernel", true}, {"operands", true}, {"ms"},      {"share"},
                   {"calls"},          {"GB/s"},         {"of copy"},        {"TFLOP/s"}, {"of product"}};
  double all = 0;
  for (const KernelTime& kernel : bench.kernels) all += kernel.seconds;
  const Ceilings ceilings = bench.ceilings.value_or(Ceilings{});
  for (const KernelTime& kernel : bench.kernels) {
    const double gbs = 1e-9 * kernel.bytes / kernel.seconds,
                 tflops = 1e-12 * kernel.operations / kernel.seconds;
    table.rows.push_back({kernel.op, kernel.kernel, kernel.formats,
                          fmt::format("{:.3f}", 1e3 * kernel.seconds), share_text(kernel.seconds, all),
                          fmt::format("{}", kernel.calls), rate_text(gbs), share_text(gbs, ceilings.copy_gbs),
                          rate_text(tflops), share_text(tflops, ceilings.product_tflops)});
  }
  return fmt::format(
      "\nBy kernel, in {} more steps timed one by one: {:.2f} ms of a step's {:.2f} (medians)\n\n{}",
      bench.options.profile_steps, 1e3 * all, 1e3 * bench.median_seconds, table.markdown());
}

std::string input_text(const StepBench& bench) {
  const std::string& task = bench.options.config.task;
  return task == RunConfig{}.task
             ? fmt::format("{} in {} classes", bench.network.input, bench.network.classes)
             : fmt::format("{} of {}, {} classes", task, bench.network.input, bench.network.classes);
}

// JSON has no infinity and no NaN.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string step_bench_text(const StepBench& bench) {
  const RunConfig& config = bench.options.config;
  std::string text = fmt::format(
      "{} at width {}, {} parameters, {}, batch {}{}\npolicy {}, {} with update {}{}, at rate "
      "{}, on {}, "
      "{} "
      "thread{}\n\n",
      config.model, config.width, bench.parameters, input_text(bench), config.batch,
      config.grad_accum > 1 ? fmt::format(" in {} micro-batches", config.grad_accum) : "", config.policy,
      config.optimizer, config.update, config.fused_backward ? ", fused backward" : "", config.lr.value_or(0),
      config.device, bench.threads, bench.threads == 1 ? "" : "s");
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", name, value);
  };
  line("step", fmt::format("{:.2f} ms (median of {}; {:.2f} to {:.2f})", 1e3 * bench.median_seconds,
                           bench.options.steps, 1e3 * bench.least_seconds, 1e3 * bench.most_seconds));
  line("examples", fmt::format("{:.0f} a second", bench.examples_per_second));
  line("peak, planned", mebi_text(bench.planned_bytes));
  line("peak, allocated", mebi_text(bench.allocated_bytes));
  if (bench.device_bytes) line("peak, on the device", mebi_text(*bench.device_bytes));
  line("process grew by", mebi_text(bench.resident_bytes));
  const auto rate = [&](double value, const char* unit, double ceiling, const char* what) {
    const std::string share =
        bench.ceilings ? fmt::format(", {} of {}'s {}", share_text(value, ceiling), what, rate_text(ceiling))
                       : "";
    return fmt::format("{} {}{}", rate_text(value), unit, share);
  };
  const Ceilings ceilings = bench.ceilings.value_or(Ceilings{});
  line("products", rate(bench.tflops(), "TFLOP/s", ceilings.product_tflops, "a matrix product"));
  line("bytes", rate(bench.gbs(), "GB/s", ceilings.copy_gbs, "a copy"));
  line("ceilings", bench.ceilings ? ceilings.how : "not measured");
  if (bench.skipped > 0) line("skipped steps", fmt::format("{}: they update nothing", bench.skipped));
  if (bench.promotable > 0)
    line("overflowing tensors", fmt::format("{}, which training would promote", bench.promotable));
  if (!std::isfinite(bench.loss))
    line("loss", fmt::format("{}{}", bench.loss, config.lr ? ": give a lower --lr" : ""));
  if (!bench.kernels.empty()) text += kernels_text(bench);
  return text;
}

std::string step_bench_json(const StepBench& bench) {
  const RunConfig& config = bench.options.config;
  Json json = {{"model", config.model},
               {"width", config.width},
               {"input", bench.network.input},
               {"classes", bench.network.classes},
               {"parameters", bench.parameters},
               {"batch", config.batch},
               {"grad_accum", config.grad_accum},
               {"policy", config.policy},
               {"optimizer", config.optimizer},
               {"lr", config.lr.value_or(0)},
               {"update", config.update},
               {"weight", config.weight},
               {"state", config.state},
               {"fused_backward", config.fused_backward},
               {"device", config.device},
               {"tensor_core", config.tensor_core},
               {"tf32", config.tf32},
               {"fp8_native", config.fp8_native},
               {"threads", bench.threads},
               {"warmup_steps", bench.options.warmup_steps},
               {"steps", bench.options.steps},
               {"ms", 1e3 * bench.median_seconds},
               {"ms_min", 1e3 * bench.least_seconds},
               {"ms_max", 1e3 * bench.most_seconds},
               {"examples_per_second", bench.examples_per_second},
               {"loss", finite(bench.loss)},
               {"skipped", bench.skipped},
               {"promotable", bench.promotable},
               {"planned_peak_bytes", bench.planned_bytes},
               {"allocated_peak_bytes", bench.allocated_bytes},
               {"resident_growth_bytes", bench.resident_bytes},
               {"device_peak_bytes", bench.device_bytes ? Json(*bench.device_bytes) : Json(nullptr)},
               {"operations", bench.work.operations},
               {"bytes_moved", bench.work.bytes},
               {"tflops", bench.tflops()},
               {"gbs", bench.gbs()},
               {"ceilings", nullptr},
               {"kernels", Json::array()}};
  if (bench.ceilings) {
    json["ceilings"] = {{"copy_gbs", bench.ceilings->copy_gbs},
                        {"product_tflops", bench.ceilings->product_tflops},
                        {"how", bench.ceilings->how}};
    json["tflops_share"] = bench.tflops() / bench.ceilings->product_tflops;
    json["gbs_share"] = bench.gbs() / bench.ceilings->copy_gbs;
  }
  double all = 0;
  for (const KernelTime& kernel : bench.kernels) all += kernel.seconds;
  for (const KernelTime& kernel : bench.kernels) {
    json["kernels"].push_back({{"op", kernel.op},
                               {"kernel", kernel.kernel},
                               {"operands", kernel.formats},
                               {"ms", 1e3 * kernel.seconds},
                               {"share", kernel.seconds / all},
                               {"calls", kernel.calls},
                               {"gbs", 1e-9 * kernel.bytes / kernel.seconds},
                               {"tflops", 1e-12 * kernel.operations / kernel.seconds}});
  }
  return json.dump();
}

}  // namespace ulp
