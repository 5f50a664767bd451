#include "ulp/lab/update_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <variant>

#include "ulp/backend/kernel.h"
#include "ulp/backend/update.h"
#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/philox.h"
#include "ulp/graph/ops.h"
#include "ulp/io/metrics.h"
#include "ulp/lab/rates.h"
#include "ulp/lab/step_bench.h"
#include "ulp/run/setup.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/parameters.h"
#include "ulp/session/profile.h"
#include "ulp/tensor/memory.h"
#include "ulp/tensor/stored.h"

namespace ulp {
namespace {

constexpr double kMebi = 1 << 20;

// The role of a tensor in its update.
enum class Role : uint8_t { weight, gradient, state, squares, compensation };

float size_of(Role role) {
  switch (role) {
    case Role::weight:
      return 0.1f;
    case Role::squares:
      return 1e-6f;
    case Role::compensation:
      return 1e-5f;
    default:
      return 1e-3f;
  }
}

// Parameters, their gradients and what the optimizer keeps, and the one task that updates them, as
// a plan would have it.
class Updates {
 public:
  explicit Updates(const UpdateBenchOptions& options)
      : config_(options.config),
        optimizer_(optimizer_config(config_)),
        rules_(update_options(config_)),
        backend_(find_backend(config_.device)),
        device_(device_of(backend_)),
        memory_(device_) {
    add_parameters(options);
    choose_formats(parse_storage(options.gradient));
    plan_.reset(new PlanContext{graph_, formats_});
    plan_->options.arithmetic = rules_.arithmetic;
    Problem problem{*plan_, {}, {}, {}};
    for (size_t i = 0; i < graph_.node_count(); ++i) problem.roots.push_back(NodeId{static_cast<int32_t>(i)});
    std::string reasons;
    kernel_ = KernelChoice(config_.kernels, backend_).pick(backend_, problem, &reasons);
    if (kernel_ == nullptr) fail("bench", "no kernel for these updates: {}", reasons);
    task_ = kernel_->make(problem);
    allocate();
  }

  // Returns what the clock says.
  double run(PlanClock& clock) {
    const StepState state = step_state(config_, steps_, kUpdatesBefore + steps_, optimizer_.lr, 1);
    device_.upload(state_.data(), &state, sizeof state);
    // When a step begins, nothing has been reported yet.
    const std::vector<uint8_t> zeros(std::max(stats_.bytes(), counts_.bytes()));
    device_.upload(stats_.data(), zeros.data(), stats_.bytes());
    device_.upload(counts_.data(), zeros.data(), counts_.bytes());
    RunContext context;
    context.data = data_;
    context.state = reinterpret_cast<const StepState*>(state_.data());
    context.workspace = workspace_.data();
    context.stats = reinterpret_cast<EncodeStats*>(stats_.data());
    context.updates = reinterpret_cast<UpdateCounts*>(counts_.data());
    const auto recording = device_.record([&](Stream stream) {
      context.stream = stream;
      clock.begin(0, stream);
      task_->run(context);
      clock.end(0, stream);
    });
    recording->launch();
    device_.wait();
    ++steps_;
    const std::vector<PlanStepTime> times = clock.take();
    return times.at(0).seconds;
  }

  // The counts of the last run.
  UpdateCounts counts() const {
    std::vector<UpdateCounts> all(graph_.tensor_count());
    device_.download(all.data(), counts_.data(), sizeof(UpdateCounts) * all.size());
    UpdateCounts sum;
    for (const UpdateCounts& one : all) sum.merge(one);
    return sum;
  }

  void describe(UpdateBench& bench) const {
    bench.weight = storage_name(stored_weight(rules_.rule, rules_.weight.format));
    bench.state = state_format_text(rules_.state);
    bench.rule = update_rule_text(rules_.rule);
    bench.kernel = kernel_->name;
    bench.memory = memory_.in_use();
    bench.bytes = bytes_;
  }

 private:
  // Corrections of Adam's moments are near 1 by then, as in most steps of a run.
  static constexpr uint64_t kUpdatesBefore = 1000;

  void add_parameters(const UpdateBenchOptions& options) {
    for (int64_t i = 0; i < options.tensors; ++i) {
      TensorInfo info;
      info.name = fmt::format("weight{}", i);
      info.shape = {options.elements * (i + 1) / options.tensors - options.elements * i / options.tensors};
      info.kind = Kind::weight;
      const TensorId weight = graph_.add_tensor(info);
      info.name += ".grad";
      info.kind = Kind::weight_grad;
      const TensorId grad = graph_.add_tensor(info);
      graph_.edit(weight).grad = grad;
    }
    const ParameterChoices choices = choose_parameters(graph_, optimizer_, rules_);
    add_updates(graph_, [&](TensorId weight) { return update_spec(choices.at(graph_[weight].name).update); });
  }

  void choose_formats(const Storage& gradient) {
    for (const TensorInfo& tensor : graph_.tensors()) {
      roles_.push_back(role_of(tensor));
      switch (roles_.back()) {
        case Role::weight:
          formats_.push_back({stored_weight(rules_.rule, rules_.weight.format), {}});
          break;
        case Role::gradient:
          formats_.push_back({gradient, {}});
          break;
        case Role::state:
          formats_.push_back({rules_.state.first, {}});
          break;
        case Role::squares:
          formats_.push_back({rules_.state.squares, {}});
          break;
        case Role::compensation:
          formats_.push_back({rules_.weight.format, {}});
      }
    }
  }

  Role role_of(const TensorInfo& tensor) const {
    if (tensor.kind == Kind::weight) return Role::weight;
    if (tensor.kind == Kind::weight_grad) return Role::gradient;
    for (const OptimizerState& state : optimizer_states(make_optimizer(optimizer_))) {
      if (tensor.name.ends_with(fmt::format(".{}", state.name)))
        return state.squares ? Role::squares : Role::state;
    }
    return Role::compensation;
  }

  void allocate() {
    size_t needed = aligned_bytes(task_->workspace());
    for (size_t i = 0; i < graph_.tensor_count(); ++i)
      needed += aligned_bytes(tensor_bytes(graph_.tensors()[i], formats_[i].storage));
    if (const size_t free = device_.free_bytes(); needed > free) {
      fail("bench",
           "{:.1f} MiB are needed on the device and {:.1f} MiB are free: take fewer --elements or narrower "
           "formats",
           static_cast<double>(needed) / kMebi, static_cast<double>(free) / kMebi);
    }
    for (size_t i = 0; i < graph_.tensor_count(); ++i) {
      const TensorInfo& tensor = graph_.tensors()[i];
      const Storage& storage = formats_[i].storage;
      const size_t bytes = tensor_bytes(tensor, storage);
      data_.push_back(blocks_.emplace_back(memory_.allocate(bytes)).data());
      bytes_ += (roles_[i] == Role::gradient ? 1 : 2) *
                static_cast<double>(storage_size(storage, tensor.elements()).bytes());
    }
    workspace_ = memory_.allocate(task_->workspace());
    state_ = memory_.allocate(sizeof(StepState));
    stats_ = memory_.allocate(sizeof(EncodeStats) * graph_.tensor_count());
    counts_ = memory_.allocate(sizeof(UpdateCounts) * graph_.tensor_count());
    for (size_t i = 0; i < graph_.tensor_count(); ++i) fill(i);
  }

  // One block of values over and over: they need only be ordinary. Not zeros, which draw less
  // power.
  void fill(size_t which) {
    const Storage& storage = formats_[which].storage;
    const size_t n = graph_.tensors()[which].elements();
    // S2FP8 takes a whole tensor at once.
    const size_t block = std::holds_alternative<S2fp8>(storage) ? n : std::min(n, size_t{1} << 16);
    std::vector<float> values(block);
    const float size = size_of(roles_[which]);
    const bool positive = roles_[which] == Role::squares;
    parallel_for(block, 4096, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const PhiloxWords words =
            philox({{static_cast<uint32_t>(i), static_cast<uint32_t>(roles_[which]), 0, 2}}, {{7, 11}});
        const float value = size * static_cast<float>(static_cast<int32_t>(words.word[0])) * 0x1p-31f;
        values[i] = positive ? std::fabs(value) : value;
      }
    });
    std::vector<uint8_t> bytes(blocks_[which].bytes());
    parallel_for(n, block, [&](size_t begin, size_t end) {
      for (size_t first = begin; first < end; first += block) {
        const StoredParts parts = stored_slice(storage, bytes.data(), n, first);
        encode(storage, {}, std::span(values).first(std::min(block, end - first)), parts.codes, parts.side,
               first);
      }
    });
    device_.upload(blocks_[which].data(), bytes.data(), bytes.size());
  }

  const RunConfig config_;
  const OptimizerConfig optimizer_;
  const UpdateOptions rules_;
  const Backend& backend_;
  Device& device_;
  Memory memory_;
  Graph graph_;
  std::vector<Role> roles_;  // by tensor, as the following
  std::vector<TensorFormat> formats_;
  std::vector<Block> blocks_;
  std::vector<uint8_t*> data_;
  double bytes_ = 0;
  Block workspace_, state_, stats_, counts_;
  std::unique_ptr<PlanContext> plan_;
  const KernelDef* kernel_ = nullptr;
  std::unique_ptr<Task> task_;
  uint64_t steps_ = 0;
};

}  // namespace

UpdateBench bench_update(const UpdateBenchOptions& options) {
  check(options.config);
  check_count("warm-up steps", options.warmup_steps, 0);
  check_count("steps", options.steps, 1);
  constexpr int64_t kMost = int64_t{1} << 40, kMostTensors = 100'000;
  if (options.elements < 1 || options.elements > kMost)
    fail("bench", "the number of elements must be from 1 to {}, got {}", kMost, options.elements);
  if (options.tensors < 1 || options.tensors > std::min(options.elements, kMostTensors)) {
    fail("bench", "the elements can be shared out to 1 to {} tensors, got {}",
         std::min(options.elements, kMostTensors), options.tensors);
  }
  if (options.config.weight == "assigned")
    fail("bench", "there are no products whose formats weights could have: name a format");
  if (options.config.threads > 0) set_thread_count(static_cast<int>(options.config.threads));

  UpdateBench result;
  result.options = options;
  result.threads = thread_count();
  Updates updates(options);
  const BenchDevice* device = find_bench_device(options.config.device);
  std::unique_ptr<PlanClock> clock;
  if (device != nullptr && device->clock != nullptr) {
    clock = device->clock();
  } else if (device_of(find_backend(options.config.device)).on_host()) {
    clock = std::make_unique<HostClock>();
  } else {
    fail("bench", "nothing is known of the clocks of {}", options.config.device);
  }
  for (int64_t i = 0; i < options.warmup_steps; ++i) updates.run(*clock);
  for (int64_t i = 0; i < options.steps; ++i) result.seconds.push_back(updates.run(*clock));
  const RateSpread seconds = spread(result.seconds);
  result.median_seconds = seconds.median;
  result.least_seconds = seconds.least;
  result.most_seconds = seconds.most;
  result.counts = updates.counts();
  updates.describe(result);
  if (device != nullptr && device->ceilings != nullptr) result.ceilings = device->ceilings();
  return result;
}

std::string update_bench_text(const UpdateBench& bench) {
  const UpdateBenchOptions& options = bench.options;
  std::string text = fmt::format(
      "{} on {} parameters in {} tensor{}, update {}\nweights {}, gradients {}, state {}, on {}, {} "
      "thread{}\n\n",
      options.config.optimizer, options.elements, options.tensors, options.tensors == 1 ? "" : "s",
      bench.rule, bench.weight, options.gradient, bench.state, options.config.device, bench.threads,
      bench.threads == 1 ? "" : "s");
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", name, value);
  };
  line("update", fmt::format("{:.3f} ms (median of {}; {:.3f} to {:.3f})", 1e3 * bench.median_seconds,
                             options.steps, 1e3 * bench.least_seconds, 1e3 * bench.most_seconds));
  line("moved", fmt::format("{:.1f} MB, {:.4g} bytes a parameter", 1e-6 * bench.bytes,
                            bench.bytes / static_cast<double>(options.elements)));
  const double copy = bench.ceilings ? bench.ceilings->copy_gbs : 0;
  line("rate", fmt::format("{} GB/s{}", rate_text(bench.gbs()),
                           bench.ceilings ? fmt::format(", {} of a copy's {}", share_text(bench.gbs(), copy),
                                                        rate_text(copy))
                                          : ""));
  line("kernel", bench.kernel);
  line("cancelled updates",
       fmt::format("{} of {} in the last step", bench.counts.cancelled, bench.counts.updates));
  line("memory", fmt::format("{:.1f} MiB", static_cast<double>(bench.memory) / kMebi));
  line("ceilings", bench.ceilings ? bench.ceilings->how : "not measured on this device");
  return text;
}

std::string update_bench_json(const UpdateBench& bench) {
  const UpdateBenchOptions& options = bench.options;
  Json json = {{"optimizer", options.config.optimizer},
               {"elements", options.elements},
               {"tensors", options.tensors},
               {"update", bench.rule},
               {"weight", bench.weight},
               {"gradient", options.gradient},
               {"state", bench.state},
               {"device", options.config.device},
               {"threads", bench.threads},
               {"kernel", bench.kernel},
               {"warmup_steps", options.warmup_steps},
               {"steps", options.steps},
               {"ms", 1e3 * bench.median_seconds},
               {"ms_min", 1e3 * bench.least_seconds},
               {"ms_max", 1e3 * bench.most_seconds},
               {"bytes_moved", bench.bytes},
               {"bytes_per_parameter", bench.bytes / static_cast<double>(options.elements)},
               {"gbs", bench.gbs()},
               {"memory_bytes", bench.memory},
               {"updates", bench.counts.updates},
               {"cancelled", bench.counts.cancelled},
               {"ceilings", nullptr}};
  if (bench.ceilings) {
    json["ceilings"] = {{"copy_gbs", bench.ceilings->copy_gbs}, {"how", bench.ceilings->how}};
    json["gbs_share"] = bench.gbs() / bench.ceilings->copy_gbs;
  }
  return json.dump();
}

}  // namespace ulp
