// Runs the steps of a plan in the arena that it was laid out for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/plan/plan.h"

namespace ulp {

// What a step prepares for itself and later steps (PlanStep::preparation), if anything. The first
// of those steps needs it; until then it may run on a side stream.
void prepare_plan_step(const Plan& plan, size_t step, uint8_t* arena, RunContext& context);

// The step's task. Sets the context's workspace and the address of what was prepared. A step that
// was merged into the one before it runs nothing.
void run_task(const Plan& plan, size_t step, uint8_t* arena, RunContext& context);

// Both, one after the other.
void run_plan_step(const Plan& plan, size_t step, uint8_t* arena, RunContext& context);

}  // namespace ulp
