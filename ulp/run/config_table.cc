// The table of a run's options: names, help, and what each value must be.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/data/dataset.h"
#include "ulp/models/model.h"
#include "ulp/precision/policy.h"
#include "ulp/precision/promotion.h"
#include "ulp/precision/sensitivities.h"
#include "ulp/run/config.h"
#include "ulp/tasks/task.h"

namespace ulp {
namespace {

constexpr int64_t kMostCount = std::numeric_limits<int64_t>::max();

// Numbers are judged as the fp32 numbers that steps use.
bool from_zero(double x) { return x >= 0; }
bool positive(double x) { return static_cast<float>(x) > 0; }
bool fraction(double x) { return x >= 0 && static_cast<float>(x) < 1; }
template <int64_t kLeast, int64_t kMost>
bool between(double x) {
  return x >= static_cast<double>(kLeast) && x <= static_cast<double>(kMost);
}

std::string shortest_storage(std::string_view text) {
  return text.empty() ? "" : storage_name(parse_storage(text));
}
std::string shortest_storages(std::string_view text) {
  const size_t slash = text.find('/');
  const std::string first = shortest_storage(text.substr(0, slash));
  return slash == text.npos ? first : first + "/" + shortest_storage(text.substr(slash + 1));
}
std::string shortest_formats(std::string_view text) {
  std::string made;
  for (const FormatOverride& own : parse_overrides(text))
    made += fmt::format("{}{}={}", made.empty() ? "" : " ", own.name, storage_name(own.storage));
  return made;
}
std::string shortest_weight(const WeightFormat& weight) {
  return weight.assigned ? "assigned" : storage_name(weight.format);
}
std::string shortest_weight(std::string_view text) {
  return text == "default" ? "default" : shortest_weight(parse_weight_format(text));
}
std::string shortest_state(std::string_view text) {
  return text == "default" ? "default" : state_format_text(parse_state_format(text));
}
std::string shortest_groups(std::string_view text) {
  std::string made;
  for (const ParameterGroup& group : parse_parameter_groups(text)) {
    std::string keys;
    const auto add = [&keys](std::string_view key, const std::string& value) {
      keys += fmt::format("{}{}={}", keys.empty() ? "" : ",", key, value);
    };
    if (group.lr_factor) add("lr", fmt::format("{}", *group.lr_factor));
    if (group.weight_decay) add("decay", fmt::format("{}", *group.weight_decay));
    if (group.rule) add("update", update_rule_text(*group.rule));
    if (group.weight) add("weight", shortest_weight(*group.weight));
    if (group.state) add("state", state_format_text(*group.state));
    made += fmt::format("{}{}:{}", made.empty() ? "" : " ", group.selector, keys);
  }
  return made;
}
// amp:FORMAT and its like.
std::string shortest_policy(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos || !has_own_formats(text)) return std::string(text);
  return fmt::format("{}:{}", text.substr(0, colon), shortest_storage(text.substr(colon + 1)));
}

constexpr ConfigRule kAnything = {};
constexpr ConfigRule kTask = {.parse = [](std::string_view text) { find_task(text); }};
constexpr ConfigRule kModel = {.parse = [](std::string_view text) {
  for (const TaskInfo& task : tasks()) {
    for (const std::string_view name : task.models()) {
      if (name == text) return;
    }
  }
  find_model(text);
}};
// Checks only the form of a policy that reads a file: the file may be gone when the run is read
// later.
constexpr ConfigRule kPolicy = {
    .parse =
        [](std::string_view text) {
          const bool listed = text.starts_with("list:") && text.size() > 5;
          const size_t file = sensitivity_file(text).size();
          if (!listed) parse_policy(file == 0 ? text : text.substr(0, text.size() - file - 1));
        },
    .shortest = shortest_policy};
constexpr ConfigRule kLossScale = {.parse =
                                       [](std::string_view text) {
                                         if (text != "default") parse_loss_scale(text);
                                       },
                                   .number = true};
constexpr ConfigRule kCandidates = {.parse = [](std::string_view text) { make_candidates(text); }};
constexpr ConfigRule kStorage = {.parse =
                                     [](std::string_view text) {
                                       if (!text.empty()) parse_storage(text);
                                     },
                                 .shortest = shortest_storage};
constexpr ConfigRule kStorages = {.parse =
                                      [](std::string_view text) {
                                        const size_t slash = text.find('/');
                                        if (text.empty()) return;
                                        parse_storage(text.substr(0, slash));
                                        if (slash != text.npos) parse_storage(text.substr(slash + 1));
                                      },
                                  .shortest = shortest_storages};
constexpr ConfigRule kFormats = {.parse = [](std::string_view text) { parse_overrides(text); },
                                 .shortest = shortest_formats};
constexpr ConfigRule kHistograms = {.parse = [](std::string_view text) { parse_names(text); }};
constexpr ConfigRule kPromote = {.parse =
                                     [](std::string_view text) {
                                       if (text != "default") parse_promotion(text);
                                     },
                                 .number = true};
constexpr ConfigRule kUpdateRule = {.parse = [](std::string_view text) {
  if (text != "default") parse_update_rule(text);
}};
constexpr ConfigRule kWeight = {.parse = [](std::string_view text) { shortest_weight(text); },
                                .shortest = shortest_weight};
constexpr ConfigRule kState = {.parse = [](std::string_view text) { shortest_state(text); },
                               .shortest = shortest_state};
constexpr ConfigRule kGroups = {.parse = [](std::string_view text) { parse_parameter_groups(text); },
                                .shortest = shortest_groups};
constexpr ConfigRule kFusedOverflow = {.parse = [](std::string_view text) {
  if (text != "twice" && text != "snapshot") fail("config", "'{}' is neither twice nor snapshot", text);
}};
constexpr ConfigRule kTableGradients = {.parse = [](std::string_view text) {
  if (text != "auto" && text != "dense" && text != "rows")
    fail("config", "'{}' is none of auto, dense and rows", text);
}};
constexpr ConfigRule kOnOff = {.parse = [](std::string_view text) {
  if (text != "on" && text != "off") fail("config", "'{}' is neither on nor off", text);
}};
constexpr ConfigRule kAccumulator = {
    .parse = [](std::string_view text) { parse_format(text); },
    .shortest = [](std::string_view text) { return format_name(parse_format(text)); }};
constexpr ConfigRule kOverflow = {.parse = [](std::string_view text) { parse_overflow(text); }};
constexpr ConfigRule kRound = {.parse = [](std::string_view text) { parse_round(text); }};
constexpr ConfigRule kNamed = {.parse = [](std::string_view text) {
  if (text.empty()) fail("config", "it is empty; it must be named");
}};
constexpr ConfigRule kDataSet = {.parse = [](std::string_view text) {
  for (const TaskInfo& task : tasks()) {
    if (task.takes_data(text)) return;
  }
  find_dataset(text);
}};
constexpr ConfigRule kShape = {.parse = [](std::string_view text) {
  DataRequest request;
  if (!text.empty()) parse_image_shape(text, request);
}};
constexpr ConfigRule kAugment = {.parse = [](std::string_view text) {
  RunConfig config;
  config.augment = text;
  augment_of(config);
}};
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

std::string task_forms() {
  std::string text;
  for (const TaskInfo& task : tasks())
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", task.name, task.about);
  return text;
}

// "0.1 for sgd; 0.001 for adam, adamw": what `of` says of each optimizer of which it says anything.
template <typename Of>
std::string of_optimizers(const Of& of) {
  std::vector<std::pair<std::string, std::string>> found;
  Optimizers::for_each([&]<typename Op>() {
    const std::string said = of(Op::kTraits);
    if (said.empty()) return;
    const auto same =
        std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.first == said; });
    if (same == found.end()) {
      found.emplace_back(said, Op::kName);
    } else {
      same->second += std::string(", ") + Op::kName;
    }
  });
  std::string text;
  for (const auto& [said, names] : found)
    text += fmt::format("{}{} for {}", text.empty() ? "" : "; ", said, names);
  return text;
}

std::string of_optimizers(double OptimizerTraits::*what) {
  const bool zero_is_none =
      what == &OptimizerTraits::eps || what == &OptimizerTraits::beta2 || what == &OptimizerTraits::momentum;
  return of_optimizers([&](const OptimizerTraits& traits) {
    return zero_is_none && traits.*what == 0 ? "" : fmt::format("{}", traits.*what);
  });
}

std::string of_optimizers(const char* OptimizerTraits::*what) {
  return of_optimizers([&](const OptimizerTraits& traits) { return traits.*what; });
}

// "sgd": those that have it.
std::string with_trait(bool OptimizerTraits::*what) {
  std::string names;
  Optimizers::for_each([&]<typename Op>() {
    if (Op::kTraits.*what) names += (names.empty() ? "" : ", ") + std::string(Op::kName);
  });
  return names;
}

}  // namespace

std::span<const ConfigField> config_fields() {
  using C = RunConfig;
  static const std::string policy_help = "Which tensor is stored in which format: " + policy_forms(),
                           update_help = "How a weight's update is written back: " + update_rule_forms() +
                                         "; default: master, with fpu16 plain",
                           task_help = "What is learned: " + task_forms(), optimizer_help = optimizer_names(),
                           rate_help = "Learning rate, which the schedule multiplies; auto: " +
                                       of_optimizers(&OptimizerTraits::lr),
                           decay_help =
                               "Weight decay; auto: " + of_optimizers(&OptimizerTraits::weight_decay),
                           beta2_help = "A share: " + of_optimizers(&OptimizerTraits::beta2_help) +
                                        "; auto: " + of_optimizers(&OptimizerTraits::beta2),
                           beta1_help = "A share: " + of_optimizers(&OptimizerTraits::beta1_help),
                           momentum_help = "Momentum; auto: " + of_optimizers(&OptimizerTraits::momentum),
                           nesterov_help = "Let " + with_trait(&OptimizerTraits::momentums) +
                                           " look ahead along the momentum",
                           eps_help =
                               "What is added before dividing; auto: " + of_optimizers(&OptimizerTraits::eps);
  static const ConfigField rows[] = {
      {"task", "Model", &C::task, "NAME", task_help, kTask},
      {"model", "Model", &C::model, "NAME", "Network to train", kModel},
      {"width", "Model", &C::width, "FACTOR", "Factor on the network's numbers of channels", kPositive},
      {"label_smoothing", "Model", &C::label_smoothing, "SHARE",
       "Share of the target spread evenly over all classes", kFraction},
      {"init", "Model", &C::init, "FILE",
       "Start from the weights in this safetensors file, as `ulp export` and PyTorch write it, instead of "
       "random ones",
       kAnything},

      {"data", "Data", &C::data, "NAME",
       "Data set (see ulp datasets), file of a text or of clicks, or prefix of ratings", kDataSet, "dataset"},
      {"data_dir", "Data", &C::data_dir, "FOLDER",
       "Look for the data set here alone, not where ULP_DATA says or where Debian puts it", kAnything},
      {"image_shape", "Data", &C::image_shape, "[Cx]HxW",
       "HxW: folder scales its pictures to it; HxW or CxHxW: synthetic makes such images", kShape},
      {"subset", "Data", &C::subset, "COUNT", "Train on so many examples, chosen by the seed; 0: all",
       kCount},
      {"augment", "Data", &C::augment, "HOW",
       "none, crop:PAD, flip, crop:PAD+flip; auto: crop:4+flip for cifar and fashion-mnist, else none",
       kAugment},
      {"length", "Data", &C::length, "COUNT", "Sequences of text are cut at so many characters", kSize},

      {"epochs", "Length", &C::epochs, "COUNT",
       "Times through the training examples; not together with steps", kCount},
      {"steps", "Length", &C::steps, "COUNT", "Steps, instead of epochs; 0: by epochs", kCount},
      {"batch", "Length", &C::batch, "COUNT", "Examples a step", kSize, "batch_size"},
      {"grad_accum", "Length", &C::grad_accum, "COUNT",
       "Micro-batches that a batch is cut into; must divide it", kMicroBatches},
      {"stop_not_finite", "Length", &C::stop_not_finite, "STEPS",
       "Stop, with exit code 3, after so many steps in a row whose loss is not finite; 0: never", kCount},

      {"optimizer", "Optimizer", &C::optimizer, "NAME", optimizer_help, kOptimizer},
      {"lr", "Optimizer", &C::lr, "RATE", rate_help, kPositive, "learning_rate"},
      {"momentum", "Optimizer", &C::momentum, "SHARE", momentum_help, kFraction},
      {"nesterov", "Optimizer", &C::nesterov, "", nesterov_help, kAnything},
      {"weight_decay", "Optimizer", &C::weight_decay, "RATE", decay_help, kNotNegative},
      {"beta1", "Optimizer", &C::beta1, "SHARE", beta1_help, kFraction},
      {"beta2", "Optimizer", &C::beta2, "SHARE", beta2_help, kFraction},
      {"eps", "Optimizer", &C::eps, "NUMBER", eps_help, kPositive},
      {"schedule", "Optimizer", &C::schedule, "FORM",
       "constant, step:EVERY:FACTOR, multi-step:E1,E2,..:FACTOR, cosine[:FLOOR] or linear[:FLOOR]",
       kSchedule},
      {"warmup", "Optimizer", &C::warmup, "LENGTH",
       "Steps, or epochs as 5e, in which the rate rises; 5e:0.1 starts at a tenth of it", kWarmup},
      {"clip_value", "Optimizer", &C::clip_value, "LIMIT",
       "Clip each element of the gradients to this size; 0: do not", kNotNegative},
      {"clip_norm", "Optimizer", &C::clip_norm, "LIMIT", "Scale the gradients down to this norm; 0: do not",
       kNotNegative, "max_grad_norm"},

      {"policy", "Precision", &C::policy, "POLICY", policy_help, kPolicy},
      {"candidates", "Precision", &C::candidates, "NAME",
       "The high and low formats that a policy chooses between: hfp8, fp8 or s2fp8", kCandidates},
      {"hi", "Precision", &C::hi, "FORMAT", "High format, instead of the candidates'", kStorage,
       "high_format"},
      {"lo", "Precision", &C::lo, "FORMAT",
       "Low format of activations and weights, instead of the candidates'", kStorage, "low_format"},
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
       "step; off: never; default: 0.01, but off for policies with formats of their own (fp32, amp, "
       "products, s2fp8, fp8, fpu16)",
       kPromote},
      {"loss_scale", "Precision", &C::loss_scale, "SCALE",
       "none; S, a factor; auto, a factor measured at the start; dynamic[:INIT[:GROWTH_STEPS]], halved by "
       "overflow; these skip a step whose gradients overflow. constant:S, exponential:INIT:STEPS[:FACTOR] "
       "and, at its least, back-off[:INIT[:GROWTH_STEPS[:LEAST]]] do not. default: dynamic where gradients "
       "have less range than fp32 and do not adapt, else none",
       kLossScale},
      {"accumulator", "Precision", &C::accumulator, "FORMAT",
       "Round the partial sums of products to this after each term; anything but fp32 is slow", kAccumulator},
      {"overflow", "Precision", &C::overflow, "RULE",
       "What a number beyond the largest becomes: saturate (the largest), or inf in formats that have it",
       kOverflow},
      {"round", "Precision", &C::round, "HOW",
       "How activations, gradients and weights that products read are rounded: even (to the nearest), away, "
       "zero or stochastic",
       kRound},

      {"update", "Updates", &C::update, "RULE", update_help, kUpdateRule},
      {"weight", "Updates", &C::weight, "FORMAT",
       "What weights are stored in, but with master; assigned: each in the format that products read it in; "
       "default: bf16, "
       "with fpu16 its format",
       kWeight, "weight_format"},
      {"state", "Updates", &C::state, "FORMAT",
       "What optimizer state is stored in: fp32, bf16, fp16 or another plain format, with :sr for stochastic "
       "rounding, or "
       "8bit; default: fp32, with fpu16 its format",
       kState, "optimizer_state_format"},
      {"groups", "Updates", &C::groups, "LIST",
       "Other settings for some parameters, such as 'norm:decay=0 bias:decay=0 >=100000:update=stochastic "
       "fc.*:lr=0.1'; "
       "keys: lr (a factor), decay, update, weight, state",
       kGroups},
      {"fused_backward", "Updates", &C::fused_backward, "",
       "Update each weight as soon as its gradient is complete, and give up the gradient's memory",
       kAnything},
      {"fused_overflow", "Updates", &C::fused_overflow, "HOW",
       "With fused backward, how a step whose gradients overflow is skipped: twice (gradients are made once "
       "to look and once "
       "to update), or snapshot (weights and state are kept and put back)",
       kFusedOverflow},
      {"table_gradients", "Updates", &C::table_gradients, "WHICH",
       "What an embedding table's gradient has: dense (all rows), rows (those that a step looked up; the "
       "others "
       "and their state rest), or auto (rows where the others would not change: sgd without momentum and "
       "adagrad, "
       "without weight decay, Kahan's sum, extra:N:sr and --clip-norm; else dense)",
       kTableGradients},

      {"device", "Machine", &C::device, "NAME",
       "Where to compute: cpu, cuda (an NVIDIA GPU), or reference (plain loops)", kNamed},
      {"threads", "Machine", &C::threads, "COUNT",
       "Threads of the parallel loops; 0: as many as there are cores", kThreads},
      {"workspace", "Machine", &C::workspace, "BYTES",
       "Scratch memory that a kernel may choose to take; suffixes KB, MB, GB of 1024", kBytes},
      {"kernels", "Machine", &C::kernels, "LIST",
       "Kernels by operator, such as conv2d=reference,relu=fused or *=reference", kAnything},
      {"tensor_core", "Machine", &C::tensor_core, "on|off",
       "On a GPU: products on the narrowest tensor-core type that holds both operands exactly, or all in "
       "plain fp32",
       kOnOff},
      {"tf32", "Machine", &C::tf32, "",
       "On a GPU: products of fp32 and S2FP8 tensors on tensor cores too, which cut their operands to 10 "
       "bits",
       kAnything},
      {"fp8_native", "Machine", &C::fp8_native, "",
       "On a GPU: products of e4m3 tensors forward on the hardware's 8-bit units, which add up in fewer bits",
       kAnything},
      {"seed", "Machine", &C::seed, "NUMBER", "Seed of everything random", kSeed},

      {"out", "Output", &C::out, "FOLDER",
       "Folder of the run; runs/MODEL-DATA-POLICY-SEED unless named, with -2, -3 and so on where that is "
       "taken",
       kAnything},
      {"checkpoint_every", "Output", &C::checkpoint_every, "STEPS",
       "Save a checkpoint every so many steps too; 0: after each epoch only", kCount},
      {"tensorboard", "Output", &C::tensorboard, "", "Also write events for TensorBoard", kAnything},
      {"histograms", "Output", &C::histograms, "NAMES",
       "Also write how these tensors are spread over exponents, such as 'conv1.* fc.weight'; a '*' stands "
       "for anything",
       kHistograms},
      {"histogram_every", "Output", &C::histogram_every, "STEPS", "Do so every so many steps", kSize},
  };
  return rows;
}

KernelOptions kernel_options(const RunConfig& c) {
  KernelOptions options;
  options.round = parse_round(c.round);
  options.overflow = parse_overflow(c.overflow);
  options.workspace = static_cast<size_t>(c.workspace);
  const FloatFormat sums = parse_format(c.accumulator);
  if (sums != parse_format("fp32")) options.accumulator = sums;
  options.tensor_core = c.tensor_core == "on";
  options.tf32 = c.tf32;
  options.fp8_native = c.fp8_native;
  return options;
}

}  // namespace ulp
