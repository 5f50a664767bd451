#include "ulp/run/idle.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/precision/promotion.h"
#include "ulp/run/setup.h"
#include "ulp/runtime/registry.h"

namespace ulp {
namespace {

bool differs(const RunConfig& config, std::string_view name) {
  const ConfigField& field = find_config_field(name);
  return field.get(config) != field.default_text();
}

// The text of an option as it stands on a command line.
std::string given(const RunConfig& config, std::string_view name) {
  const ConfigField& field = find_config_field(name);
  return field.is_switch() ? field.flag() : fmt::format("{} {}", field.flag(), field.get(config));
}

[[noreturn]] void refuse(const RunConfig& config, std::string_view name, std::string_view why) {
  fail("config", "{} would change nothing: {}; leave {} out", given(config, name), why, name);
}

// A device that this build lacks counts as not on the host, so that a sweep for another machine can
// be listed here.
bool on_host(const std::string& device) {
  try {
    return device_of(find_backend(device)).on_host();
  } catch (const Error&) {
    return false;
  }
}

// Whether numbers beyond the largest may be written to it as infinities. fp32 itself is never rounded to.
bool takes_infinities(const Storage& storage) { return !is_fp32(storage) && has_infinity(storage); }

bool takes_infinities(const Engine& engine, const RunConfig& config) {
  if (const std::optional<FloatFormat> sums = kernel_options(config).accumulator; sums && sums->has_inf())
    return true;
  const auto& formats = engine.training_plan().formats();
  return std::any_of(formats.begin(), formats.end(),
                     [](const TensorFormat& format) {
                       return takes_infinities(format.storage) ||
                              (format.operand && takes_infinities(*format.operand));
                     }) ||
         std::any_of(engine.first_assignment().high.begin(), engine.first_assignment().high.end(),
                     [](const auto& entry) { return takes_infinities(entry.second); });
}

// Whether a tensor is written in the mode of the run. fp32 is not rounded, and extra bits and S2FP8 are
// rounded in ways of their own.
bool rounds_by_mode(const Engine& engine) {
  const auto rounded = [](const Storage& storage) {
    return !is_fp32(storage) &&
           (std::holds_alternative<Plain>(storage) || std::holds_alternative<Scaled>(storage));
  };
  const auto& formats = engine.training_plan().formats();
  for (size_t i = 0; i < formats.size(); ++i) {
    const bool state = is_state(engine.graph().tensors()[i].kind);
    if (formats[i].operand ? rounded(*formats[i].operand) : !state && rounded(formats[i].storage))
      return true;
  }
  return false;
}

}  // namespace

void refuse_idle_options(const RunConfig& config, std::span<const std::string_view> named) {
  const OptimizerTraits& traits = optimizer_traits(parse_optimizer(config.optimizer));
  // A switch that is off asks for nothing.
  const auto asked = [&](std::string_view name) {
    return differs(config, name) || (!find_config_field(name).is_switch() &&
                                     std::find(named.begin(), named.end(), name) != named.end());
  };
  const auto has_none = [&](bool has, std::string_view name) {
    if (!has && asked(name)) refuse(config, name, fmt::format("{} has no {}", config.optimizer, name));
  };
  has_none(traits.moments, "beta1");
  has_none(traits.moments, "beta2");
  has_none(traits.eps > 0, "eps");
  if (config.histograms.empty() && asked("histogram_every"))
    refuse(config, "histogram_every", "--histograms names no tensor");
  if (!config.histograms.empty() && !on_host(config.device)) {
    fail("config", "--histograms needs the device cpu or reference, not {}", config.device);
  }
  for (const char* name : {"tf32", "fp8_native", "tensor_core"}) {
    if (asked(name) && on_host(config.device))
      refuse(config, name, fmt::format("the device {} has no tensor cores", config.device));
  }
}

std::vector<std::string> idle_notes(const RunConfig& config, const Engine& engine, uint64_t steps_per_epoch,
                                    uint64_t total_steps) {
  std::vector<std::string> notes;
  const auto note = [&](std::string_view name, std::string_view why) {
    notes.push_back(fmt::format("{} changes nothing: {}", given(config, name), why));
  };
  if (differs(config, "overflow") && !takes_infinities(engine, config))
    note("overflow", "no tensor is stored in a format that has infinities");
  if (config.promote != "default" && promotion_of(config) && engine.first_assignment().high.empty())
    note("promote", "no tensor is stored in a low format");
  if (config.keep_first_last && engine.first_assignment().high.empty())
    note("keep_first_last", "no tensor is stored in a low format");
  if (differs(config, "round") && !rounds_by_mode(engine))
    note("round", "no activation or gradient is stored in a format that rounds so");
  if (config.table_gradients == "rows" && !engine.updates_by_rows()) {
    note("table_gradients",
         config.grad_accum > 1
             ? "the gradients of several micro-batches are added up in all rows"
             : "no table is read by one look-up alone and has rows that can be written alone");
  }
  if (differs(config, "state") && optimizer_states(make_optimizer(optimizer_config(config))).empty())
    note("state", fmt::format("{} keeps no state with these settings", config.optimizer));
  const uint64_t warm = schedule_of(config).warmup.steps(steps_per_epoch);
  if (warm > 0 && warm >= total_steps) {
    notes.push_back(
        fmt::format("--warmup {} takes {} steps and the run {}: the learning rate never comes to {}",
                    config.warmup, warm, total_steps, optimizer_config(config).lr));
  }
  return notes;
}

}  // namespace ulp
