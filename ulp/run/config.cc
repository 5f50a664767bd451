#include "ulp/run/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/promotion.h"

namespace ulp {
namespace {

// The whole text as a finite number, or nothing.
template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) return {};
  }
  return value;
}

AugmentChoice parse_augment(std::string_view text) {
  AugmentChoice choice;
  if (text == "none" || text == "auto") return choice;
  std::string_view crop = text;
  if (text == "flip") return {0, true};
  if (crop.ends_with("+flip")) {
    choice.mirror = true;
    crop.remove_suffix(5);
  }
  const auto padding = crop.starts_with("crop:") ? number<int>(crop.substr(5)) : std::nullopt;
  if (!padding || *padding < 1) {
    fail("config", "'{}' is no augmentation; forms: auto, none, crop:PAD, flip, crop:PAD+flip (PAD from 1)",
         text);
  }
  choice.padding = *padding;
  return choice;
}

[[noreturn]] void bad_value(const ConfigField& field, std::string_view text, std::string_view label) {
  const bool automatic = std::holds_alternative<std::optional<double> RunConfig::*>(field.member);
  fail("config", "{} is {}; it must be {}{}", label, text,
       field.is_switch() ? "true or false" : field.rule.must, automatic ? ", or auto" : "");
}

void check_number(const ConfigField& field, double value, std::string_view text, std::string_view label) {
  if (!std::isfinite(value) || !std::isfinite(static_cast<float>(value)) || !field.rule.ok(value)) {
    bad_value(field, text, label);
  }
}

void check_text(const ConfigField& field, const std::string& text, std::string_view label) {
  if (field.rule.parse == nullptr) return;
  try {
    field.rule.parse(text);
  } catch (const Error& error) {
    throw Error("config", fmt::format("{}: {}", label, error.message()));
  }
}

// The value's own checks, whoever set it.
struct Checker {
  const ConfigField& field;
  const RunConfig& config;
  std::string_view text, label;

  void operator()(std::string RunConfig::*member) const { check_text(field, config.*member, label); }
  void operator()(bool RunConfig::*) const {}
  void operator()(std::optional<double> RunConfig::*member) const {
    if (const auto& value = config.*member) check_number(field, *value, text, label);
  }
  template <typename Number>
  void operator()(Number RunConfig::*member) const {
    check_number(field, static_cast<double>(config.*member), text, label);
  }
};

struct Getter {
  const ConfigField& field;
  const RunConfig& config;

  std::string operator()(std::string RunConfig::*member) const { return config.*member; }
  std::string operator()(bool RunConfig::*member) const { return config.*member ? "true" : "false"; }
  std::string operator()(int64_t RunConfig::*member) const {
    return field.rule.bytes ? bytes_with_unit(config.*member) : std::to_string(config.*member);
  }
  std::string operator()(std::optional<double> RunConfig::*member) const {
    return config.*member ? fmt::format("{}", *(config.*member)) : "auto";
  }
  template <typename Number>
  std::string operator()(Number RunConfig::*member) const {
    return fmt::format("{}", config.*member);
  }
};

// False for text that is no value of the type.
struct Setter {
  const ConfigField& field;
  RunConfig& config;
  std::string_view text;

  bool operator()(std::string RunConfig::*member) const {
    config.*member = text;
    return true;
  }
  bool operator()(bool RunConfig::*member) const {
    config.*member = text == "true";
    return text == "true" || text == "false";
  }
  bool operator()(std::optional<double> RunConfig::*member) const {
    config.*member = text == "auto" ? std::nullopt : number<double>(text);
    return text == "auto" || config.*member;
  }
  template <typename Number>
  bool operator()(Number RunConfig::*member) const {
    std::optional<Number> value;
    if constexpr (std::is_same_v<Number, int64_t>) {
      value = field.rule.bytes ? parse_bytes(text) : number<Number>(text);
    } else {
      value = number<Number>(text);
    }
    if (value) config.*member = *value;
    return value.has_value();
  }
};

std::string flag_of(std::string_view name) {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

std::string ConfigField::flag() const { return flag_of(name); }

std::string ConfigField::also_flag() const { return also.empty() ? "" : flag_of(also); }

std::string ConfigField::get(const RunConfig& config) const {
  return std::visit(Getter{*this, config}, member);
}

void ConfigField::set(RunConfig& config, std::string_view text, std::string_view label) const {
  RunConfig changed = config;
  const std::string quoted = fmt::format("'{}'", text);
  if (!std::visit(Setter{*this, changed, text}, member)) bad_value(*this, quoted, label);
  std::visit(Checker{*this, changed, quoted, label}, member);
  config = std::move(changed);
}

void ConfigField::check(const RunConfig& config) const {
  const std::string text = get(config);
  std::visit(Checker{*this, config, text, name}, member);
}

std::string config_field_hint(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ConfigField& field : config_fields()) {
    known.push_back(field.name);
    if (!field.also.empty()) known.push_back(field.also);
  }
  const std::string_view nearest = nearest_name(name, known);
  if (nearest.empty()) return "ulp train --help has all of them";
  return fmt::format("the nearest is {}", find_config_field(nearest).name);
}

const ConfigField& find_config_field(std::string_view name) {
  for (const ConfigField& field : config_fields()) {
    if (field.is_named(name)) return field;
  }
  fail("config", "unknown option '{}'; {}", name, config_field_hint(name));
}

void apply_level(RunConfig& config, std::span<const ConfigSetting> level) {
  const ConfigSetting *epochs = nullptr, *steps = nullptr;  // those above 0
  for (const ConfigSetting& setting : level) {
    for (const ConfigSetting* before = level.data(); before != &setting; ++before) {
      if (before->field == setting.field) {
        fail("config", "{} and {} are two names of one option; give one of them", before->label,
             setting.label);
      }
    }
    setting.field->set(config, setting.text, setting.label);
    if (setting.field->name == "epochs" && config.epochs > 0) epochs = &setting;
    if (setting.field->name == "steps" && config.steps > 0) steps = &setting;
  }
  if (epochs && steps) {
    fail("config", "{} and {} are both given; give one of them", epochs->label, steps->label);
  }
  if (epochs) config.steps = 0;
  if (steps) config.epochs = 0;
}

RunConfig with_shortest_names(RunConfig config) {
  for (const ConfigField& field : config_fields()) {
    if (field.rule.shortest == nullptr) continue;
    std::string& text = config.*std::get<std::string RunConfig::*>(field.member);
    try {
      text = field.rule.shortest(text);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): check() tells it
    }
  }
  return config;
}

RunConfig with_names_of(RunConfig config, const RunConfig& other) {
  const RunConfig here = with_shortest_names(config), there = with_shortest_names(other);
  for (const ConfigField& field : config_fields()) {
    if (field.rule.shortest == nullptr || field.get(here) != field.get(there)) continue;
    const auto member = std::get<std::string RunConfig::*>(field.member);
    config.*member = other.*member;
  }
  return config;
}

void check(const RunConfig& c) {
  check_training(c);
  if (c.epochs == 0 && c.steps == 0) fail("config", "epochs and steps are both 0; one must be above 0");
  if (c.subset != 0 && c.batch > c.subset) {
    fail("config", "a batch of {} is more than the subset of {}; batch must be at most subset", c.batch,
         c.subset);
  }
}

void check_training(const RunConfig& c) {
  for (const ConfigField& field : config_fields()) field.check(c);
  if (c.batch % c.grad_accum != 0) {
    fail("config", "a batch of {} cannot be cut into {} equal micro-batches; grad_accum must divide batch",
         c.batch, c.grad_accum);
  }
  if (c.clip_value != 0 && c.clip_norm != 0) {
    fail("config", "clip_value is {} and clip_norm is {}; one of them must be 0", c.clip_value, c.clip_norm);
  }
  if (c.fused_overflow != "twice" && !c.fused_backward) {
    fail("config", "fused_overflow is {}, but there is no fused backward: give --fused-backward too",
         c.fused_overflow);
  }
  if (c.fused_overflow == "snapshot" && c.clip_norm != 0) {
    fail("config",
         "a snapshot cannot serve clip_norm, which must be known before the first update: leave "
         "fused_overflow at "
         "twice");
  }
  optimizer_config(c).check();
  check_precision(c);
}

void check_precision(const RunConfig& c) {
  const UpdateOptions updates = precision_options(c).updates;
  parse_policy(c.policy);  // with its file
  // Assigned formats are known only when there is a graph.
  if (!updates.weight.assigned) stored_weight(updates.rule, updates.weight.format);
  if (has_own_formats(c.policy)) {
    // Silence would look as if they had been used.
    const RunConfig defaults;
    for (const char* name : {"candidates", "hi", "lo", "lo_grad", "weight_grad"}) {
      const ConfigField& field = find_config_field(name);
      if (field.get(c) == field.get(defaults)) continue;
      fail("config", "policy {} has formats of its own: leave {} out", c.policy, name);
    }
  }
}

OptimizerConfig optimizer_config(const RunConfig& c) {
  OptimizerConfig o;
  o.kind = parse_optimizer(c.optimizer);
  const OptimizerTraits& traits = optimizer_traits(o.kind);
  o.lr = c.lr.value_or(traits.lr);
  o.momentum = c.momentum.value_or(traits.momentum);
  o.nesterov = c.nesterov;
  o.weight_decay = c.weight_decay.value_or(traits.weight_decay);
  o.beta1 = c.beta1;
  o.beta2 = c.beta2.value_or(traits.beta2 > 0 ? traits.beta2 : OptimizerConfig{}.beta2);
  o.eps = c.eps.value_or(traits.eps > 0 ? traits.eps : OptimizerConfig{}.eps);
  return o;
}

Schedule schedule_of(const RunConfig& c) {
  Schedule schedule = parse_schedule(c.schedule);
  schedule.warmup = parse_warmup(c.warmup);
  return schedule;
}

AugmentChoice augment_of(const RunConfig& c) {
  if (c.augment != "auto") return parse_augment(c.augment);
  // Digits must not be mirrored, and nothing is known about the pictures of a folder.
  const bool usual = c.task == RunConfig{}.task &&
                     (c.data == "cifar10" || c.data == "cifar100" || c.data == "fashion-mnist");
  return usual ? AugmentChoice{4, true} : AugmentChoice{};
}

uint64_t total_steps(const RunConfig& c, uint64_t steps_per_epoch) {
  if (c.steps > 0) return static_cast<uint64_t>(c.steps);
  const auto epochs = static_cast<uint64_t>(std::max<int64_t>(c.epochs, 0));
  if (steps_per_epoch != 0 && epochs > std::numeric_limits<uint64_t>::max() / steps_per_epoch) {
    fail("config", "{} epochs of {} steps are too many to count", epochs, steps_per_epoch);
  }
  return epochs * steps_per_epoch;
}

UpdateOptions update_options(const RunConfig& c) {
  UpdateOptions options;
  const std::optional<FloatFormat> fpu = fpu_format(c.policy);
  options.arithmetic = fpu;
  options.rule = parse_update_rule(c.update != "default" ? c.update : fpu ? "plain" : "master");
  const bool master = options.rule.kind == UpdateRule::Kind::master;
  if (c.weight != "default") {
    options.weight = parse_weight_format(c.weight);
  } else if (!master) {
    options.weight.format = fpu ? Plain{*fpu} : parse_storage("bf16");
  }
  if (c.state != "default") {
    options.state = parse_state_format(c.state);
  } else if (fpu) {
    options.state = {Plain{*fpu}, Plain{*fpu}, false};
  }
  options.groups = parse_parameter_groups(c.groups);
  if (fpu) options.narrow = Plain{*fpu};
  if (!master && !options.weight.assigned) options.narrow = options.weight.format;
  options.promotes = promotion_of(c).has_value();
  return options;
}

PrecisionOptions precision_options(const RunConfig& c) {
  PrecisionOptions options;
  options.policy = c.policy;
  options.candidates = has_own_formats(c.policy)
                           ? make_candidates(c.candidates, "fp32")
                           : make_candidates(c.candidates, c.hi, c.lo, c.lo_grad, c.weight_grad);
  options.keep_first_last = c.keep_first_last;
  options.overrides = parse_overrides(c.formats);
  options.updates = update_options(c);
  return options;
}

std::optional<double> promotion_of(const RunConfig& c) {
  return c.promote == "default" ? default_promotion(c.policy) : parse_promotion(c.promote);
}

std::optional<LossScale> loss_scale_of(const RunConfig& c) {
  if (c.loss_scale == "default") return std::nullopt;
  return parse_loss_scale(c.loss_scale);
}

std::string out_of(const RunConfig& c) {
  if (!c.out.empty()) return c.out;
  constexpr std::string_view kFit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+";
  std::string name = fmt::format("{}-{}-{}-{}", c.model, c.data, c.policy, c.seed);
  for (char& letter : name) {
    if (kFit.find(letter) == std::string_view::npos) letter = '_';
  }
  return "runs/" + name;
}

}  // namespace ulp
