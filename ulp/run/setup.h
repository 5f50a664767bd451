// What a configuration means for those who do the work: the task and the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/run/config.h"
#include "ulp/session/engine.h"
#include "ulp/tasks/task.h"

namespace ulp {

// Everything that decides a bit, as far as it is chosen, as checkpoints keep it. Where the run and
// its data lie, and what it writes beside, may change.
std::string run_text(const RunConfig& config);
// Whether it speaks of an option at all.
bool decides_bits(const ConfigField& field);
// The same of those options alone that `counts` says yes to.
std::string run_text(const RunConfig& config, const std::function<bool(const ConfigField&)>& counts);

// Data is resident on devices that make batches from it.
TaskOptions task_options(const RunConfig& config);
// All but the network and its shapes.
EngineOptions engine_options(const RunConfig& config);
// Throws an Error if the policy names a file that was measured on another network.
EngineOptions engine_options(const RunConfig& config, const LearningTask& task);

// The parts of that which need no data: how steps are skipped under fused backward, and whether they may be.
EngineOptions::FusedOverflow fused_overflow_of(const RunConfig& config);
std::function<bool(std::span<const CountedTensor>, const Assignment&)> may_skip(const RunConfig& config);

// What a step is told. `updates` is how many were made before it, `lr` its learning rate, `scale`
// the loss scale.
StepState step_state(const RunConfig& config, uint64_t step, uint64_t updates, double lr, double scale);
// What an evaluation after so many steps is told. Where it rounds stochastically, its words are not
// those of the next step.
StepState evaluation_state(const RunConfig& config, uint64_t step);
// What a machine with one narrow format makes of the optimizer's numbers, where that is worth a warning.
std::vector<std::string> arithmetic_notes(const RunConfig& config);

}  // namespace ulp
