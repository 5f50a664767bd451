#include "ulp/runtime/run_step.h"

#include <vector>

namespace ulp {

void prepare_plan_step(const Plan& plan, size_t number, uint8_t* arena, RunContext& context) {
  const PlanStep& step = plan.steps()[number];
  if (step.preparation == nullptr) return;
  std::vector<uint8_t*> places;
  for (const int member : step.prepares)
    places.push_back(arena + *plan.steps()[static_cast<size_t>(member)].prepared);
  context.places = places;
  context.workspace = nullptr;
  step.preparation->run(context);
  context.places = {};
}

void run_task(const Plan& plan, size_t number, uint8_t* arena, RunContext& context) {
  const PlanStep& step = plan.steps()[number];
  if (step.merged) return;
  context.workspace = arena + step.workspace;
  context.prepared = step.prepared ? arena + *step.prepared : nullptr;
  (step.merged_task != nullptr ? step.merged_task : step.task)->run(context);
}

void run_plan_step(const Plan& plan, size_t number, uint8_t* arena, RunContext& context) {
  prepare_plan_step(plan, number, arena, context);
  run_task(plan, number, arena, context);
}

}  // namespace ulp
