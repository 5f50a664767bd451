#include "ulp/run/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/io/metrics.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/sensitivities.h"
#include "ulp/run/checkpoint.h"
#include "ulp/run/scaling.h"
#include "ulp/runtime/registry.h"

namespace ulp {
namespace {

// A graph does not know its model, so the policy itself can only count groups.
void check_sensitivity_file(const NetworkId& id, const std::string& policy) {
  const std::string file = sensitivity_file(policy);
  if (file.empty()) return;
  const Sensitivities measured = load_sensitivities(file);
  const auto here = id.items();
  for (const auto& [name, value] : measured.network) {
    const auto same =
        std::find_if(here.begin(), here.end(), [&key = name](const auto& item) { return item.first == key; });
    // 1 and 1.0 are one width.
    if (same == here.end() || parse_json(same->second) == parse_json(value)) continue;
    fail("precision", "sensitivity file '{}' is of {} {}, this is of {} {}", file, name, value, name,
         same->second);
  }
}

}  // namespace

bool decides_bits(const ConfigField& field) {
  constexpr std::array<std::string_view, 8> free = {
      "out",         "data_dir",        "threads",    "checkpoint_every",
      "tensorboard", "stop_not_finite", "histograms", "histogram_every"};
  return std::find(free.begin(), free.end(), field.name) == free.end();
}

std::string run_text(const RunConfig& config) {
  return run_text(config, [](const ConfigField&) { return true; });
}

std::string run_text(const RunConfig& config, const std::function<bool(const ConfigField&)>& counts) {
  std::string text;
  for (const ConfigField& field : config_fields()) {
    if (!decides_bits(field) || !counts(field)) continue;
    // Epochs or steps end a run, and only one of the two counts.
    if (field.name == (config.steps > 0 ? "epochs" : "steps")) continue;
    // Options of later versions are left out at their defaults, so that older runs can be resumed.
    constexpr std::array<std::string_view, 8> later = {
        "task", "length", "tensor_core", "tf32", "fp8_native", "init", "round", "table_gradients"};
    if (std::find(later.begin(), later.end(), field.name) != later.end() &&
        field.get(config) == field.get(RunConfig{}))
      continue;
    // Written out, as it was before it had a default of each optimizer.
    const std::string value =
        field.name == "beta2" ? fmt::format("{}", optimizer_config(config).beta2) : field.get(config);
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", field.name, value);
  }
  return text;
}

std::string run_identity(const RunConfig& config, const LearningTask& task, const Engine& engine) {
  std::string text =
      run_text(config) + task.data_text() + "; formats " + assignment_digest(engine.first_assignment());
  if (engine.updates_by_rows()) text += kTablesByRows;
  if (leaves_s2fp8_unscaled(config, engine.counted(), engine.first_assignment())) text += kUnscaled;
  return text;
}

std::string without(std::string run, std::string_view mark) {
  if (const size_t at = run.find(mark); at != run.npos) run.erase(at, mark.size());
  return run;
}

RunConfig with_older_defaults(RunConfig config, const std::string& checkpoint) {
  std::error_code error;
  if (!std::filesystem::exists(checkpoint, error)) return config;
  const std::string run = checkpoint_run(checkpoint);
  if (!loss_scale_of(config)) config.scales_s2fp8 = !run.ends_with(kUnscaled);
  config.tables_dense = run.find(kTablesByRows) == run.npos;
  return config;
}

TaskOptions task_options(const RunConfig& config) {
  const AugmentChoice augmentation = augment_of(config);
  TaskOptions options;
  options.task = config.task;
  options.model = config.model;
  options.width = config.width;
  options.data = config.data;
  options.data_dir = config.data_dir;
  options.image_shape = config.image_shape;
  options.label_smoothing = config.label_smoothing;
  options.batch = config.batch;
  options.micro_batches = config.grad_accum;
  options.subset = config.subset;
  options.length = config.length;
  options.padding = augmentation.padding;
  options.mirror = augmentation.mirror;
  options.seed = config.seed;
  options.resident = !device_of(find_backend(config.device)).on_host();
  return options;
}

EngineOptions engine_options(const RunConfig& config, const LearningTask& task) {
  check_sensitivity_file(task.id(), config.policy);
  EngineOptions options = engine_options(config);
  options.build = task.build();
  options.batch = task.batch();
  return options;
}

EngineOptions engine_options(const RunConfig& config) {
  EngineOptions options;
  options.optimizer = optimizer_config(config);
  options.precision = precision_options(config);
  options.device = config.device;
  options.kernels = config.kernels;
  options.compute = kernel_options(config);
  options.micro_batches = config.grad_accum;
  options.clip_norm = config.clip_norm;
  options.fused_backward = config.fused_backward;
  options.fused_overflow_of = fused_overflow_of(config);
  using Tables = EngineOptions::TableGradients;
  const bool dense =
      config.table_gradients == "dense" || (config.table_gradients == "auto" && config.tables_dense);
  options.table_gradients = dense                              ? Tables::dense
                            : config.table_gradients == "rows" ? Tables::rows
                                                               : Tables::automatic;
  options.may_skip = may_skip(config);
  options.seed = config.seed;
  return options;
}

EngineOptions::FusedOverflow fused_overflow_of(const RunConfig& config) {
  return config.fused_overflow == "snapshot" ? EngineOptions::FusedOverflow::snapshot
                                             : EngineOptions::FusedOverflow::twice;
}

std::function<bool(std::span<const CountedTensor>, const Assignment&)> may_skip(const RunConfig& config) {
  return [config](std::span<const CountedTensor> tensors, const Assignment& assignment) {
    return choose_loss_scale(config, tensors, assignment).may_skip();
  };
}

StepState step_state(const RunConfig& config, uint64_t step, uint64_t updates, double lr, double scale) {
  const std::optional<FloatFormat> arithmetic = fpu_format(config.policy);
  OptimizerConfig optimizer = optimizer_config(config);
  if (arithmetic) optimizer = representable(optimizer, *arithmetic);
  const double clip = config.clip_value > 0 ? config.clip_value : std::numeric_limits<double>::infinity();
  StepState state;
  state.seed = config.seed;
  state.step = static_cast<uint32_t>(step);
  state.loss_scale = static_cast<float>(scale);
  state.update = update_scalars(optimizer, updates, lr, 1 / scale, clip, arithmetic);
  return state;
}

StepState evaluation_state(const RunConfig& config, uint64_t step) {
  constexpr uint64_t kEvaluationSeed = 0x6576616C75617465u;
  StepState state;
  state.seed = config.seed ^ kEvaluationSeed;
  state.step = static_cast<uint32_t>(step);
  return state;
}

std::vector<std::string> arithmetic_notes(const RunConfig& config) {
  std::vector<std::string> notes;
  if (const std::optional<FloatFormat> arithmetic = fpu_format(config.policy)) {
    const OptimizerConfig optimizer = optimizer_config(config);
    representable(optimizer, *arithmetic, &notes);
    if (optimizer.kind != OptimizerKind::sgd && arithmetic->emin() > -126) {
      notes.push_back(
          fmt::format("{} squares gradients, and in {} what is below 2^{} is 0: with an eps as small as {} "
                      "steps may explode; "
                      "choose a larger --eps, such as 1e-4, or fpu16:bf16",
                      optimizer_name(optimizer.kind), format_name(*arithmetic),
                      arithmetic->emin() - arithmetic->man, optimizer.eps));
    }
  }
  return notes;
}

}  // namespace ulp
