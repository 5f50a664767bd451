// `ulp bench`: how fast this machine trains. `step`: one training step, its memory and its kernels.
// `update`: the end of one, on any number of parameters.
#include <fmt/format.h>

#include <memory>

#include "apps/ulp/commands.h"
#include "apps/ulp/fit.h"
#include "apps/ulp/options.h"
#include "ulp/data/dataset.h"
#include "ulp/lab/step_bench.h"
#include "ulp/lab/update_bench.h"
#include "ulp/run/idle.h"

namespace ulp {
namespace {

struct StepBenchCommandOptions {
  RunOptions run;
  StepBenchOptions bench;
  bool json = false;
};

void step_bench_command(StepBenchCommandOptions& options) {
  options.bench.config = options.run.settings();
  refuse_idle_options(options.bench.config, options.run.given());
  DataRequest shape;
  if (const std::string& text = options.bench.config.image_shape; !text.empty())
    parse_image_shape(text, shape);
  if (!options.bench.config.image_shape.empty()) {
    options.bench.input = fmt::format("{}x{}x{}", shape.channels.value_or(3), shape.height.value_or(32),
                                      shape.width.value_or(32));
  }
  const StepBench bench = that_must_fit("bench", [&] { return bench_step(options.bench); });
  if (options.json) {
    fmt::print("{}\n", step_bench_json(bench));
  } else {
    fmt::print("{}", step_bench_text(bench));
  }
}

void add_step_bench_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "step",
      "Time, memory and kernels of a training step, and how near they are to what the machine can do");
  auto options = std::make_shared<StepBenchCommandOptions>();
  StepBenchOptions& wanted = options->bench;
  command->add_option("--classes", wanted.classes, "Classes")->type_name("COUNT")->capture_default_str();
  command->add_option("--warmup-steps", wanted.warmup_steps, "Steps before anything is timed")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--steps", wanted.steps, "Steps to time")->type_name("COUNT")->capture_default_str();
  command->add_option("--profile-steps", wanted.profile_steps, "More steps, timed kernel by kernel; 0: none")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_flag_callback(
      "--no-ceilings", [options] { options->bench.ceilings = false; },
      "Do not measure what the machine can do: a copy and a matrix product");
  command->add_flag("--json", options->json, "Print one JSON object");
  add_named_options(*command, options->run,
                    {"task",
                     "model",
                     "width",
                     "label_smoothing",
                     "image_shape",
                     "length",
                     "batch",
                     "grad_accum",
                     "optimizer",
                     "lr",
                     "momentum",
                     "nesterov",
                     "weight_decay",
                     "beta1",
                     "beta2",
                     "eps",
                     "clip_value",
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
                     "fp8_native",
                     "seed"});
  command->footer(
      "Examples are random numbers, 3x32x32 unless --image-shape says otherwise. Options mean what they mean "
      "to ulp train, but weights stay as they are unless --lr is given (auto: 0 here): on one batch for ever "
      "numbers would "
      "soon be unlike those of training, and kernels slower.\n"
      "Examples:\n"
      "  ulp bench step --model resnet20 --batch 128\n"
      "  ulp bench step --model resnet18 --batch 32 --policy size:0.5 --steps 10\n"
      "  ulp bench step --model mobilenetv2 --policy amp:bf16 --optimizer adamw --update extra:8 "
      "--fused-backward\n"
      "  ulp bench step --task characters --model charmlp --length 64 --classes 80 --lr 0.01\n"
      "  ulp bench step --model resnet20 --profile-steps 0 --json");
  command->callback([options] { step_bench_command(*options); });
}

struct UpdateBenchCommandOptions {
  RunOptions run;
  UpdateBenchOptions bench;
  bool json = false;
};

void update_bench_command(UpdateBenchCommandOptions& options) {
  options.bench.config = options.run.settings();
  const UpdateBench bench = bench_update(options.bench);
  if (options.json) {
    fmt::print("{}\n", update_bench_json(bench));
  } else {
    fmt::print("{}", update_bench_text(bench));
  }
}

void add_update_bench_command(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "update", "Time of an optimizer's step on many parameters, and how near it is to a copy's rate");
  auto options = std::make_shared<UpdateBenchCommandOptions>();
  UpdateBenchOptions& wanted = options->bench;
  command->add_option("--elements", wanted.elements, "Parameters")->type_name("COUNT")->capture_default_str();
  command->add_option("--tensors", wanted.tensors, "Tensors that they are shared out to")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--gradient", wanted.gradient, "What gradients are stored in")
      ->type_name("FORMAT")
      ->capture_default_str();
  command->add_option("--warmup-steps", wanted.warmup_steps, "Updates before any is timed")
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--steps", wanted.steps, "Updates to time")->type_name("COUNT")->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  add_named_options(*command, options->run,
                    {"optimizer", "lr", "momentum", "nesterov", "weight_decay", "beta1", "beta2", "eps",
                     "clip_value", "update", "weight", "state", "device", "threads", "kernels", "seed"});
  command->footer(
      "One task updates all parameters, as at the end of a step of ulp train, whose options mean the same. "
      "Counted are the "
      "bytes that it must move: gradients read, weights and state read and written.\n"
      "Examples:\n"
      "  ulp bench update --optimizer adamw --elements 10000000\n"
      "  ulp bench update --optimizer adamw --update extra:16 --gradient bf16 --state bf16 "
      "--device "
      "cuda\n"
      "  ulp bench update --update stochastic --weight bf16 --gradient bf16 --state bf16 "
      "--elements 10000000 --json");
  command->callback([options] { update_bench_command(*options); });
}

}  // namespace

void add_bench_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("bench", "How fast this machine trains");
  command->require_subcommand(1);
  add_step_bench_command(*command);
  add_update_bench_command(*command);
  command->footer(
      "Examples:\n"
      "  ulp bench step --model resnet20 --policy size:0.5\n"
      "  ulp bench update --optimizer adamw --elements 10000000");
}

}  // namespace ulp
