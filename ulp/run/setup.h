// Turns a configuration into the options of the task and of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/run/config.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {

// The text that a checkpoint keeps of a configuration: every option that was set and decides bits of
// the result. Paths of the run and its data, and further files that it writes, are no part of it.
std::string run_text(const RunConfig& config);
// Whether run_text includes an option at all.
bool decides_bits(const ConfigField& field);
// The same text, of only those options for which `counts` returns true.
std::string run_text(const RunConfig& config, const std::function<bool(const ConfigField&)>& counts);

// All of what a checkpoint keeps to know its run again: the options, the data, the formats.
std::string run_identity(const RunConfig& config, const LearningTask& task, const Engine& engine);
// Ends what a checkpoint keeps of a run whose default loss scale is none because its gradients are
// S2FP8. Older builds gave such runs a dynamic one, and did not say so.
inline constexpr std::string_view kUnscaled = "; s2fp8 unscaled";
// Stands in what a checkpoint keeps of a run in which some table's gradient has only the rows that
// were looked up. Older builds made all rows.
inline constexpr std::string_view kTablesByRows = "; tables by rows";
// What a checkpoint keeps, as builds without this mark have it.
std::string without(std::string run, std::string_view mark);
// The same with defaults as the build understood them that began the run of this checkpoint, if there
// is such a file.
RunConfig with_older_defaults(RunConfig config, const std::string& checkpoint);

// The options of the task. Data is resident on devices that make batches from it.
TaskOptions task_options(const RunConfig& config);
// The options of the engine that depend on neither the network nor its shapes.
EngineOptions engine_options(const RunConfig& config);
// All options of the engine. Throws an Error if the policy names a file that was measured on
// another network.
EngineOptions engine_options(const RunConfig& config, const LearningTask& task);

// Two of the engine's options, which need no data: how steps are skipped under fused backward, and
// whether they may be skipped.
EngineOptions::FusedOverflow fused_overflow_of(const RunConfig& config);
std::function<bool(std::span<const CountedTensor>, const Assignment&)> may_skip(const RunConfig& config);

// The state that a step starts with. `updates` is how many updates were made before it, `lr` its
// learning rate, `scale` the loss scale.
StepState step_state(const RunConfig& config, uint64_t step, uint64_t updates, double lr, double scale);
// The state that an evaluation after `step` steps starts with. If it rounds stochastically, it does
// not use the random words of the next step.
StepState evaluation_state(const RunConfig& config, uint64_t step);
// Warnings about numbers of the optimizer that a machine with one narrow format changes.
std::vector<std::string> arithmetic_notes(const RunConfig& config);

}  // namespace ulp
