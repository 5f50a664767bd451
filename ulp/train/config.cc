#include "ulp/train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/data/dataset.h"
#include "ulp/models/model.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/promotion.h"
#include "ulp/precision/sensitivities.h"

namespace ulp {
namespace {

constexpr int64_t kMostCount = std::numeric_limits<int64_t>::max();

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

// fp32 and amp: high is fp32, and nothing else is chosen.
bool has_own_formats(std::string_view policy) { return !default_promotion(policy); }

WeightStorage parse_weight(std::string_view text) {
  if (text == "assigned") return {WeightStorage::Rule::assigned, {}};
  Storage storage = parse_storage(text);
  if (!std::holds_alternative<Plain>(storage)) {
    fail("config", "weights cannot be stored as '{}': name a plain format, such as bf16, or assigned", text);
  }
  return {WeightStorage::Rule::named, std::move(storage)};
}

// Numbers are judged as the fp32 numbers that steps use.
bool from_zero(double x) { return x >= 0; }
bool positive(double x) { return static_cast<float>(x) > 0; }
bool fraction(double x) { return x >= 0 && static_cast<float>(x) < 1; }
template <int64_t kLeast, int64_t kMost>
bool between(double x) {
  return x >= static_cast<double>(kLeast) && x <= static_cast<double>(kMost);
}

constexpr ConfigRule kAnything = {};
constexpr ConfigRule kModel = {.parse = [](std::string_view text) { find_model(text); }};
// Of one that reads a file only the form: the file may be gone when a run is looked at later.
constexpr ConfigRule kPolicy = {.parse = [](std::string_view text) {
  const bool listed = text.starts_with("list:") && text.size() > 5;
  const size_t file = sensitivity_file(text).size();
  if (!listed) parse_policy(file == 0 ? text : text.substr(0, text.size() - file - 1));
}};
constexpr ConfigRule kLossScale = {.parse =
                                       [](std::string_view text) {
                                         if (text != "default") parse_loss_scale(text);
                                       },
                                   .number = true};
constexpr ConfigRule kCandidates = {.parse = [](std::string_view text) { make_candidates(text); }};
constexpr ConfigRule kStorage = {.parse = [](std::string_view text) {
  if (!text.empty()) parse_storage(text);
}};
constexpr ConfigRule kStorages = {.parse = [](std::string_view text) {
  const size_t slash = text.find('/');
  if (text.empty()) return;
  parse_storage(text.substr(0, slash));
  if (slash != text.npos) parse_storage(text.substr(slash + 1));
}};
constexpr ConfigRule kFormats = {.parse = [](std::string_view text) { parse_overrides(text); }};
constexpr ConfigRule kPromote = {.parse =
                                     [](std::string_view text) {
                                       if (text != "default") parse_promotion(text);
                                     },
                                 .number = true};
constexpr ConfigRule kUpdate = {.parse = [](std::string_view text) {
  if (text != "master" && text != "plain") {
    fail("config", "unknown update rule '{}'; known: master, plain", text);
  }
}};
constexpr ConfigRule kWeight = {.parse = [](std::string_view text) { parse_weight(text); }};
constexpr ConfigRule kAccumulator = {.parse = [](std::string_view text) { parse_format(text); }};
constexpr ConfigRule kOverflow = {.parse = [](std::string_view text) { parse_overflow(text); }};
constexpr ConfigRule kNamed = {.parse = [](std::string_view text) {
  if (text.empty()) fail("config", "it is empty; it must be named");
}};
constexpr ConfigRule kDataSet = {.parse = [](std::string_view text) { find_dataset(text); }};
constexpr ConfigRule kShape = {.parse = [](std::string_view text) {
  DataRequest request;
  if (!text.empty()) parse_image_shape(text, request);
}};
constexpr ConfigRule kAugment = {.parse = [](std::string_view text) { parse_augment(text); }};
constexpr ConfigRule kOptimizer = {.parse = [](std::string_view text) { parse_optimizer(text); }};
constexpr ConfigRule kSchedule = {.parse = [](std::string_view text) { parse_schedule(text); }};
constexpr ConfigRule kWarmup = {.parse = [](std::string_view text) { parse_warmup(text); }, .number = true};
constexpr ConfigRule kCount = {"a whole number from 0", between<0, kMostCount>};
constexpr ConfigRule kSize = {"a whole number from 1", between<1, kMostCount>};
constexpr ConfigRule kMicroBatches = {"a whole number from 1 to 65536", between<1, 65536>};  // RoundKey's
constexpr ConfigRule kThreads = {"a whole number from 0 to 4096", between<0, 4096>};
constexpr ConfigRule kSeed = {"a whole number from 0 to 2^64 - 1", from_zero};
constexpr ConfigRule kBytes = {
    .must = "bytes from 0, such as 65536, 512KB, 64MB or 1GB", .ok = from_zero, .bytes = true};
constexpr ConfigRule kPositive = {"a finite number above 0", positive};
constexpr ConfigRule kNotNegative = {"a finite number from 0", from_zero};
constexpr ConfigRule kFraction = {"a number from 0, below 1", fraction};

std::span<const ConfigField> table() {
  using C = RunConfig;
  static const ConfigField rows[] = {
      {"model", "Model", &C::model, "NAME", "Network to train", kModel},
      {"width", "Model", &C::width, "FACTOR", "Factor on the network's numbers of channels", kPositive},
      {"label_smoothing", "Model", &C::label_smoothing, "SHARE",
       "Share of the target spread evenly over all classes", kFraction},

      {"data", "Data", &C::data, "NAME", "Data set (see ulp datasets)", kDataSet},
      {"data_dir", "Data", &C::data_dir, "FOLDER",
       "Look for the data set here alone, not where ULP_DATA says or where Debian puts it", kAnything},
      {"image_shape", "Data", &C::image_shape, "HxW[xC]",
       "HxW: folder scales its pictures to it; HxW or HxWxC: synthetic makes such images", kShape},
      {"subset", "Data", &C::subset, "COUNT", "Train on so many examples, chosen by the seed; 0: all",
       kCount},
      {"augment", "Data", &C::augment, "HOW",
       "none, crop:PAD, flip, crop:PAD+flip; auto: crop:4+flip for cifar and fashion-mnist, else none",
       kAugment},

      {"epochs", "Length", &C::epochs, "COUNT",
       "Times through the training examples; not together with steps", kCount},
      {"steps", "Length", &C::steps, "COUNT", "Steps, instead of epochs; 0: by epochs", kCount},
      {"batch", "Length", &C::batch, "COUNT", "Examples a step", kSize},
      {"grad_accum", "Length", &C::grad_accum, "COUNT",
       "Micro-batches that a batch is cut into; must divide it", kMicroBatches},

      {"optimizer", "Optimizer", &C::optimizer, "NAME", "sgd, adam or adamw", kOptimizer},
      {"lr", "Optimizer", &C::lr, "RATE",
       "Learning rate, which the schedule multiplies; auto: 0.1 for sgd, 0.001 for adam and adamw",
       kPositive},
      {"momentum", "Optimizer", &C::momentum, "SHARE", "Momentum of sgd; auto: 0.9", kFraction},
      {"nesterov", "Optimizer", &C::nesterov, "", "Let sgd look ahead along its momentum", kAnything},
      {"weight_decay", "Optimizer", &C::weight_decay, "RATE",
       "Weight decay; auto: 0.0005 for sgd, 0 for adam, 0.01 for adamw", kNotNegative},
      {"beta1", "Optimizer", &C::beta1, "SHARE", "How much of its mean of gradients Adam keeps", kFraction},
      {"beta2", "Optimizer", &C::beta2, "SHARE", "How much of its mean of squares Adam keeps", kFraction},
      {"eps", "Optimizer", &C::eps, "NUMBER", "What Adam adds before it divides", kPositive},
      {"schedule", "Optimizer", &C::schedule, "FORM",
       "constant, step:EVERY:FACTOR, multi-step:E1,E2,..:FACTOR, cosine[:FLOOR] or linear[:FLOOR]",
       kSchedule},
      {"warmup", "Optimizer", &C::warmup, "LENGTH",
       "Steps, or epochs as 5e, in which the rate rises; 5e:0.1 starts at a tenth of it", kWarmup},
      {"clip_value", "Optimizer", &C::clip_value, "LIMIT",
       "Clip each element of the gradients to this size; 0: do not", kNotNegative},
      {"clip_norm", "Optimizer", &C::clip_norm, "LIMIT", "Scale the gradients down to this norm; 0: do not",
       kNotNegative},

      {"policy", "Precision", &C::policy, "POLICY",
       "Which tensor is stored in which format: fp32, uniform, op, op-out, size:R, size-inc:R, "
       "random:R[:SEED], "
       "amp:bf16, amp:fp16, list:FILE, sensitivity:R[:FILE] or peak:BYTES",
       kPolicy},
      {"candidates", "Precision", &C::candidates, "NAME",
       "The high and low formats that a policy chooses between: hfp8, fp8 or s2fp8", kCandidates},
      {"hi", "Precision", &C::hi, "FORMAT", "High format, instead of the candidates'", kStorage},
      {"lo", "Precision", &C::lo, "FORMAT",
       "Low format of activations and weights, instead of the candidates'", kStorage},
      {"lo_grad", "Precision", &C::lo_grad, "FORMAT",
       "Low format of gradients of activations, instead of the candidates'", kStorage},
      {"weight_grad", "Precision", &C::weight_grad, "FORMAT",
       "Format of gradients of weights, instead of the high one; HIGH/LOW for a choice", kStorages},
      {"keep_first_last", "Precision", &C::keep_first_last, "",
       "Keep what the first and the last product read and write high", kAnything},
      {"formats", "Precision", &C::formats, "LIST",
       "Formats of single tensors over the policy's, such as 'conv1.out=bf16 fc.*=fp32'", kFormats},
      {"promote", "Precision", &C::promote, "SHARE",
       "Give an activation or weight its high format for good once more than this share of it overflows in a "
       "step; off: never; default: 0.01, but off for fp32 and amp",
       kPromote},
      {"loss_scale", "Precision", &C::loss_scale, "SCALE",
       "none, a factor, auto (a factor measured at the start) or dynamic[:INIT[:GROWTH_STEPS]]; default: "
       "dynamic where gradients are narrow, else none",
       kLossScale},
      {"update", "Precision", &C::update, "RULE",
       "How updated weights are stored: master (fp32), or plain (in the format of --weight, rounded to "
       "nearest)",
       kUpdate},
      {"weight", "Precision", &C::weight, "FORMAT",
       "What plain updates store weights in; assigned: each in the format that products read it in", kWeight},
      {"accumulator", "Precision", &C::accumulator, "FORMAT",
       "Round the partial sums of products to this after each term; anything but fp32 is slow", kAccumulator},
      {"overflow", "Precision", &C::overflow, "RULE",
       "What a number beyond the largest becomes: saturate (the largest), or inf in formats that have it",
       kOverflow},

      {"device", "Machine", &C::device, "NAME", "Where to compute", kNamed},
      {"threads", "Machine", &C::threads, "COUNT",
       "Threads of the parallel loops; 0: as many as there are cores", kThreads},
      {"workspace", "Machine", &C::workspace, "BYTES",
       "Scratch memory that a kernel may choose to take; suffixes KB, MB, GB of 1024", kBytes},
      {"kernels", "Machine", &C::kernels, "LIST",
       "Kernels by operator, such as conv2d=reference,relu=pipeline or *=reference", kAnything},
      {"seed", "Machine", &C::seed, "NUMBER", "Seed of everything random", kSeed},

      {"out", "Output", &C::out, "FOLDER", "Folder of the run; runs/MODEL-DATA-POLICY-SEED unless named",
       kAnything},
      {"checkpoint_every", "Output", &C::checkpoint_every, "STEPS",
       "Save a checkpoint every so many steps too; 0: after each epoch only", kCount},
      {"tensorboard", "Output", &C::tensorboard, "", "Also write events for TensorBoard", kAnything},
  };
  return rows;
}

// What an error says, without the part of the program that said it.
std::string_view message_of(const Error& error) {
  const std::string_view text = error.what();
  const size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string_view::npos ? text.substr(end + 2) : text;
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
    throw Error("config", fmt::format("{}: {}", label, message_of(error)));
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

}  // namespace

std::string ConfigField::flag() const {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

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

std::span<const ConfigField> config_fields() { return table(); }

const ConfigField& nearest_config_field(std::string_view name) {
  return *std::min_element(table().begin(), table().end(), [&](const ConfigField& a, const ConfigField& b) {
    return edit_distance(name, a.name) < edit_distance(name, b.name);
  });
}

const ConfigField& find_config_field(std::string_view name) {
  for (const ConfigField& field : table()) {
    if (field.name == name) return field;
  }
  fail("config", "unknown option '{}'; the nearest is {}", name, nearest_config_field(name).name);
}

void apply_level(RunConfig& config, std::span<const ConfigSetting> level) {
  const ConfigSetting *epochs = nullptr, *steps = nullptr;  // those above 0
  for (const ConfigSetting& setting : level) {
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

void check(const RunConfig& c) {
  for (const ConfigField& field : table()) field.check(c);
  if (c.epochs == 0 && c.steps == 0) fail("config", "epochs and steps are both 0; one must be above 0");
  if (c.batch % c.grad_accum != 0) {
    fail("config", "a batch of {} cannot be cut into {} equal micro-batches; grad_accum must divide batch",
         c.batch, c.grad_accum);
  }
  if (c.subset != 0 && c.batch > c.subset) {
    fail("config", "a batch of {} is more than the subset of {}; batch must be at most subset", c.batch,
         c.subset);
  }
  if (c.clip_value != 0 && c.clip_norm != 0) {
    fail("config", "clip_value is {} and clip_norm is {}; one of them must be 0", c.clip_value, c.clip_norm);
  }
  optimizer_config(c).check();
  check_precision(c);
}

void check_precision(const RunConfig& c) {
  precision_options(c);
  parse_policy(c.policy);  // with its file
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
  const bool sgd = o.kind == OptimizerKind::sgd;
  o.lr = c.lr.value_or(sgd ? 0.1 : 0.001);
  o.momentum = c.momentum.value_or(sgd ? 0.9 : 0);
  o.nesterov = c.nesterov;
  o.weight_decay = c.weight_decay.value_or(sgd ? 5e-4 : o.kind == OptimizerKind::adam ? 0 : 0.01);
  o.beta1 = c.beta1;
  o.beta2 = c.beta2;
  o.eps = c.eps;
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
  const bool usual = c.data == "cifar10" || c.data == "cifar100" || c.data == "fashion-mnist";
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

PrecisionOptions precision_options(const RunConfig& c) {
  PrecisionOptions options;
  options.policy = c.policy;
  options.candidates = has_own_formats(c.policy)
                           ? make_candidates(c.candidates, "fp32")
                           : make_candidates(c.candidates, c.hi, c.lo, c.lo_grad, c.weight_grad);
  options.keep_first_last = c.keep_first_last;
  options.overrides = parse_overrides(c.formats);
  if (c.update == "plain") options.weights = parse_weight(c.weight);
  if (c.accumulator != "fp32") options.accumulator = parse_format(c.accumulator);
  options.overflow = parse_overflow(c.overflow);
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
