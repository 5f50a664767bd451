#include "ulp/run/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "ulp/precision/policy.h"
#include "ulp/run/scaling.h"

namespace ulp {

std::string run_text(const RunConfig& config) {
  constexpr std::array<std::string_view, 5> free = {"out", "data_dir", "threads", "checkpoint_every",
                                                    "tensorboard"};
  std::string text;
  for (const ConfigField& field : config_fields()) {
    if (std::find(free.begin(), free.end(), field.name) != free.end()) continue;
    // Of the two that end a run one holds.
    if (field.name == (config.steps > 0 ? "epochs" : "steps")) continue;
    // Those that came later, where they change nothing: runs of before can still be resumed.
    constexpr std::array<std::string_view, 3> later = {"tensor_core", "tf32", "fp8_native"};
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

std::string data_text(const ImageSet& set) {
  return fmt::format("; classes {}; input {}x{}x{}", set.classes, set.channels, set.height, set.width);
}

DataRequest data_request(const RunConfig& config) {
  DataRequest request;
  request.dir = config.data_dir;
  if (!config.image_shape.empty()) parse_image_shape(config.image_shape, request);
  request.seed = config.seed;
  return request;
}

LoaderOptions loader_options(const RunConfig& config, Part part) {
  LoaderOptions options;
  options.batch = config.batch;
  options.seed = config.seed;
  if (part == Part::test) {
    // No more examples at a time than training has, so that evaluation does not decide the memory.
    options.batch = config.batch / config.grad_accum;
    options.shuffle = false;
    return options;
  }
  if (config.subset > 0) options.subset = config.subset;
  const AugmentChoice augmentation = augment_of(config);
  options.padding = augmentation.padding;
  options.mirror = augmentation.mirror;
  return options;
}

EngineOptions engine_options(const RunConfig& config, const ImageSet& set) {
  return engine_options(
      config,
      {static_cast<int64_t>(set.channels), static_cast<int64_t>(set.height), static_cast<int64_t>(set.width)},
      static_cast<int64_t>(set.classes));
}

EngineOptions engine_options(const RunConfig& config, const ImageSize& image, int64_t classes) {
  EngineOptions options;
  options.model.name = config.model;
  options.model.width = config.width;
  options.model.batch = config.batch;
  options.model.image = image;
  options.model.classes = classes;
  options.model.label_smoothing = config.label_smoothing;
  options.optimizer = optimizer_config(config);
  options.precision = precision_options(config);
  options.device = config.device;
  options.kernels = config.kernels;
  options.compute = kernel_options(config);
  options.micro_batches = config.grad_accum;
  options.clip_norm = config.clip_norm;
  options.fused_backward = config.fused_backward;
  options.fused_overflow_of = fused_overflow_of(config);
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
    return choose_loss_scale(config, tensors, assignment).kind != LossScale::Kind::none;
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

int64_t last_batch(size_t examples, int64_t batch) {
  const auto rest = static_cast<int64_t>(examples) % batch;
  return rest == 0 ? batch : rest;
}

void plan_run(Engine& engine, const RunConfig& config, size_t train_examples, size_t test_examples) {
  engine.plan_training(last_batch(train_examples, config.batch));
  const int64_t test_batch = std::min(config.batch / config.grad_accum, static_cast<int64_t>(test_examples));
  engine.plan_evaluation(test_batch);
  engine.plan_evaluation(last_batch(test_examples, test_batch));
}

}  // namespace ulp
