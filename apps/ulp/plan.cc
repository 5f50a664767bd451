// `ulp plan`: the memory that a training step will take, and every tensor with its format, before
// anything runs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/fit.h"
#include "apps/ulp/options.h"
#include "apps/ulp/plan_choices.h"
#include "apps/ulp/text.h"
#include "ulp/base/error.h"
#include "ulp/base/file.h"
#include "ulp/base/parallel.h"
#include "ulp/models/model.h"
#include "ulp/precision/policy.h"
#include "ulp/run/config.h"
#include "ulp/run/idle.h"
#include "ulp/run/setup.h"
#include "ulp/runtime/registry.h"
#include "ulp/session/engine.h"

namespace ulp {
namespace {

struct PlanCommandOptions {
  RunOptions run;
  int64_t classes = ModelRequest{}.classes;
  std::string input, save;
  // Not given: as the data has it, or where none is named what is usual for the task.
  const CLI::Option *input_option = nullptr, *classes_option = nullptr;
  bool choices = false, json = false, steps = false, tensors = false;
};

// The papers' figures.
struct Summary {
  std::span<const CountedTensor> tensors;
  std::vector<size_t> groups;
  std::vector<bool> low;  // by group
  size_t elements = 0;
  uint64_t bits = 0;
};

Summary summarize(const Engine& engine) {
  Summary summary;
  summary.tensors = engine.counted();
  summary.groups = group_elements(summary.tensors);
  summary.low.resize(summary.groups.size());
  for (const int group : engine.assignment().low_groups) summary.low[static_cast<size_t>(group)] = true;
  for (const size_t elements : summary.groups) summary.elements += elements;
  summary.bits = aggregate_bits(summary.tensors, engine.assignment());
  return summary;
}

std::string format_text(const Engine& engine, const CountedTensor& tensor) {
  return storage_name(engine.assignment().storage_of(tensor.name));
}

Json plan_json(const Engine& engine, const Summary& summary) {
  const PlanBytes bytes = engine.planned_bytes();
  Json json = {{"elements_total", summary.elements},
               {"low_ratio_percent", 100 * engine.low_ratio()},
               {"aggregate_bits", summary.bits},
               {"peak_bytes", engine.planned_peak_bytes()},
               {"bytes_per_parameter", engine.bytes_per_parameter()},
               {"bytes",
                {{"weights", bytes.weights},
                 {"optimizer", bytes.optimizer},
                 {"activations", bytes.activations},
                 {"gradients", bytes.gradients},
                 {"workspace", bytes.workspace},
                 {"snapshot", bytes.snapshot}}},
               {"groups", Json::array()},
               {"tensors", Json::array()}};
  for (size_t i = 0; i < summary.groups.size(); ++i) {
    json["groups"].push_back({{"id", i}, {"elements", summary.groups[i]}, {"low", bool{summary.low[i]}}});
  }
  for (const CountedTensor& tensor : summary.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"op", tensor.op},
                               {"kind", kind_name(tensor.kind)},
                               {"elements", tensor.elements},
                               {"format", format_text(engine, tensor)},
                               {"group", tensor.group}});
  }
  return json;
}

void print_steps(const Plan& plan) {
  fmt::print("\n{:<44}{:<22}{:<11}{:>12}  {}\n", "step", "operator", "kernel", "workspace",
             "computed inside (and which kernels declined)");
  for (const PlanStep& step : plan.steps()) {
    const Node& root = plan.graph()[step.roots[0]];
    std::string inside = step.merged ? "(in the step before)" : "";
    for (const NodeId id : step.inlined) inside += (inside.empty() ? "" : ", ") + plan.graph()[id].name;
    const std::string name =
        step.roots.size() == 1 ? root.name : fmt::format("{} and {} more", root.name, step.roots.size() - 1);
    fmt::print("{:<44}{:<22}{:<11}{:>12}  {}\n", name, root.op->name, step.kernel->name,
               bytes_text(static_cast<double>(step.workspace_bytes())),
               step.declined.empty()
                   ? inside
                   : fmt::format("{}({})", inside.empty() ? "" : inside + " ", step.declined));
  }
}

// Where there was a choice of units for products: which, and why.
void print_products(const Plan& plan) {
  const bool any = std::any_of(plan.steps().begin(), plan.steps().end(),
                               [](const PlanStep& step) { return !step.task->note().empty(); });
  if (!any) return;
  fmt::print("\n{:<44}{:<22}{:<11}{}\n", "product", "operator", "kernel", "unit, and why");
  for (const PlanStep& step : plan.steps()) {
    const Node& root = plan.graph()[step.roots[0]];
    if (step.task->note().empty()) continue;
    fmt::print("{:<44}{:<22}{:<11}{}\n", root.name, root.op->name, step.kernel->name, step.task->note());
  }
}

void print_tensors(const Engine& engine, const Summary& summary) {
  fmt::print("\n{:<44}{:<14}{:<17}{:>12}{:>12}{:>7}\n", "tensor", "operator", "kind", "elements", "format",
             "group");
  for (const CountedTensor& tensor : summary.tensors) {
    fmt::print("{:<44}{:<14}{:<17}{:>12}{:>12}{:>7}\n", tensor.name, tensor.op, kind_name(tensor.kind),
               tensor.elements, format_text(engine, tensor), tensor.group);
  }
  fmt::print("\n{:<8}{:>14}\n", "group", "elements");
  for (size_t i = 0; i < summary.groups.size(); ++i)
    fmt::print("{:<8}{:>14}{}\n", i, summary.groups[i], summary.low[i] ? "  low" : "");
}

void print_summary(const Engine& engine, const Summary& summary, const std::string& device) {
  const PlanBytes bytes = engine.planned_bytes();
  const auto line = [](std::string_view name, size_t count) {
    fmt::print("  {:<18}{:>14}  {}\n", name, count, bytes_text(static_cast<double>(count)));
  };
  fmt::print("{} elements in {} tensors and {} groups; aggregate {} bits ({}), low {:.2f}%\n",
             summary.elements, summary.tensors.size(), summary.groups.size(), summary.bits,
             bytes_text(static_cast<double>(summary.bits) / 8), 100 * engine.low_ratio());
  fmt::print("memory at the peak of a step, in bytes:\n");
  line("weights", bytes.weights);
  line("optimizer state", bytes.optimizer);
  line("activations", bytes.activations);
  line("gradients", bytes.gradients);
  line("workspace", bytes.workspace);
  if (bytes.snapshot > 0) line("snapshot", bytes.snapshot);
  line("peak", engine.planned_peak_bytes());
  const size_t free = device_of(find_backend(device)).free_bytes();
  if (engine.planned_peak_bytes() > free)
    fmt::print("  which is more than the {} that are free here\n", bytes_text(static_cast<double>(free)));
}

void save_assignment(const PlanCommandOptions& options, const NetworkId& id, const std::string& policy,
                     const Engine& engine) {
  Json json = {{"model", id.model}, {"width", id.width}, {"classes", id.classes},
               {"input", id.input}, {"policy", policy},  {"tensors", Json::object()}};
  json["high"] = Json::object();
  for (const CountedTensor& tensor : engine.counted()) {
    json["tensors"][tensor.name] = format_text(engine, tensor);
    if (engine.assignment().is_low(tensor.name))
      json["high"][tensor.name] = storage_name(engine.assignment().high_of(tensor.name));
  }
  const std::string text = json.dump(1) + "\n";
  write_file_atomically(options.save, text);
}

// What is planned for: the data that a flag or the file names, or noise of a stated shape.
std::unique_ptr<LearningTask> planned_task(const PlanCommandOptions& options, const RunConfig& config) {
  const bool has_input = options.input_option->count() > 0, has_classes = options.classes_option->count() > 0;
  const bool has_file = options.run.file_option->count() > 0;
  bool has_data = has_file;
  for (const RunOptions::Flag& flag : options.run.flags) {
    if (flag.field->group != "Data" || flag.field->name == "length" || flag.option->count() == 0) continue;
    if (has_input || has_classes) {
      fail("plan", "{} says what the input and the classes are: leave {} out", flag.field->flag(),
           has_input ? "--input" : "--classes");
    }
    has_data = true;
  }
  if (has_input && options.input.empty())
    fail("plan", "--input is '': it must be CHANNELSxHEIGHTxWIDTH, such as 3x32x32");
  const TaskOptions wanted = task_options(config);
  NetworkId id{.input = options.input, .classes = options.classes};
  if (has_data) {
    std::unique_ptr<LearningTask> task = outline_task(wanted);
    if (!has_input && !has_classes) return task;
    if (!has_input) id.input = task->id().input;
    if (!has_classes) id.classes = task->id().classes;
  }
  return sketch_task(wanted, id);
}

void plan_command(const PlanCommandOptions& options) {
  const RunOptions::Flag& model =
      *std::find_if(options.run.flags.begin(), options.run.flags.end(),
                    [](const RunOptions::Flag& flag) { return flag.field->name == "model"; });
  if (model.option->count() == 0 && options.run.file_option->count() == 0)
    fail("plan", "no network is named: give --model (see ulp models), or --config with the file of a run");
  // The optimizer, momentum and bytes as training has them unless told.
  const RunConfig config = options.run.settings();
  check_precision(config);
  refuse_idle_options(config, options.run.given());
  for (const char* field : {"width", "batch", "grad_accum", "clip_norm"})
    find_config_field(field).check(config);
  if (config.fused_overflow != RunConfig{}.fused_overflow && !config.fused_backward) {
    fail("plan", "--fused-overflow is of no use without --fused-backward: give that too");
  }
  if (!options.save.empty() && fpu_format(config.policy)) {
    fail("plan",
         "--save keeps the formats of tensors alone, and {} is more than that: name the policy instead",
         config.policy);
  }
  if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
  const std::unique_ptr<LearningTask> task = planned_task(options, config);
  const EngineOptions made = engine_options(config, *task);
  const Engine engine(made);
  const Summary summary = summarize(engine);
  if (!options.save.empty()) save_assignment(options, task->id(), config.policy, engine);
  if (options.json) {
    fmt::print("{}\n", plan_json(engine, summary).dump());
    return;
  }
  print_summary(engine, summary, config.device);
  fmt::print("\n{}", update_summary(made, engine));
  if (options.choices) fmt::print("\n{}", update_table(made, engine));
  if (options.tensors) print_tensors(engine, summary);
  if (options.steps) print_steps(engine.training_plan());
  print_products(engine.training_plan());
}

}  // namespace

void add_plan_command(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("plan", "The tensors, formats and memory of a training step, before it runs");
  auto options = std::make_shared<PlanCommandOptions>();
  options->classes_option =
      command->add_option("--classes", options->classes, "Classes; as --data has them, or 10")
          ->type_name("COUNT");
  options->input_option =
      command->add_option("--input", options->input, "CxHxW of an image; as --data has it, or 3x32x32")
          ->type_name("CxHxW");
  add_config_file(*command, options->run);
  add_named_options(*command, options->run,
                    {"task",
                     "model",
                     "width",
                     "data",
                     "data_dir",
                     "image_shape",
                     "length",
                     "batch",
                     "grad_accum",
                     "optimizer",
                     "clip_norm",
                     "policy",
                     "candidates",
                     "hi",
                     "lo",
                     "lo_grad",
                     "weight_grad",
                     "keep_first_last",
                     "formats",
                     "promote",
                     "loss_scale",
                     "accumulator",
                     "overflow",
                     "round",
                     "update",
                     "weight",
                     "state",
                     "groups",
                     "fused_backward",
                     "fused_overflow",
                     "table_gradients",
                     "device",
                     "threads",
                     "workspace",
                     "kernels",
                     "tensor_core",
                     "tf32",
                     "fp8_native"});
  command->add_option("--save", options->save, "Write the assignment to a file");
  command->add_flag("--choices", options->choices,
                    "Print the bytes of a parameter for every update rule and format of state too");
  command->add_flag("--tensors", options->tensors, "Print every tensor with its format, and the groups, too");
  command->add_flag("--steps", options->steps,
                    "Print the steps too: kernels, workspaces, what is computed inside what");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Examples:\n"
      "  ulp plan --model resnet18 --batch 128\n"
      "  ulp plan --model resnet18 --data cifar100 --policy size:0.5 --tensors\n"
      "  ulp plan --config runs/first/config.toml --batch 256\n"
      "  ulp plan --model resnet20 --input 1x32x32 --steps\n"
      "  ulp plan --model resnet18 --policy size:0.5 --candidates fp8 --save half.json\n"
      "  ulp plan --model resnet18 --policy peak:300MB\n"
      "  ulp plan --model resnet18 --optimizer adamw --update extra:8 --state 8bit --fused-backward\n"
      "  ulp plan --model resnet18 --policy size:0.5 --device cuda\n"
      "  ulp plan --task clicks --model dlrm --input 10000 --policy s2fp8\n"
      "  ulp plan --task characters --model charmlp --length 64 --classes 80 --policy size:0.5\n"
      "  ulp plan --model squeezenet --width 0.25 --json");
  command->callback([options] { that_must_fit("plan", [&] { plan_command(*options); }); });
}

}  // namespace ulp
