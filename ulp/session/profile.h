// Where the time of a training step goes: its plan's steps timed one by one and grouped by operator
// and kernel, products also by the formats of their operands, with the bytes and operations that
// each must do.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/backend/plan_clock.h"
#include "ulp/plan/plan.h"
#include "ulp/session/engine.h"

namespace ulp {

// What a step of a plan must move: every tensor that it reads or writes, once, as stored. Updated
// state counts as both. What is computed inside the step counts as neither. Two merged steps count
// as one, the first.
size_t moved_bytes(const Plan& plan, const PlanStep& step);
// Multiplications and additions of its products, each counted.
double product_operations(const Plan& plan, const PlanStep& step);

// The stored formats of the two operands of its product, or the formats they are rounded to when
// read: "bf16 x fp(4,3,4)". "" if it is no product.
std::string product_formats(const Plan& plan, const PlanStep& step);

// Of a whole training step, all of its micro-batches. Gradients that are computed twice move bytes
// twice, but their second products do not count as operations.
struct StepWork {
  double bytes = 0, operations = 0;
};
StepWork step_work(const Plan& plan, int64_t micro_batches);

// For all steps of a plan with the same operator, kernel and product_formats, in one training step.
// Two merged steps have both operators' names.
struct KernelTime {
  std::string op, kernel, formats;
  double seconds = 0;
  uint64_t calls = 0;
  double bytes = 0, operations = 0;
};

// Calls `train`, which must make one step with the engine, `count` times (at least once) while the
// clock times its plan's steps. Returns the medians over those calls by kernel, longest first.
std::vector<KernelTime> profile_steps(Engine& engine, PlanClock& clock, int64_t count,
                                      const std::function<void()>& train);

// For a backend whose tasks are done when they return.
class HostClock : public PlanClock {
 public:
  void begin(size_t step, CUstream_st* stream) override;
  void end(size_t step, CUstream_st* stream) override;
  std::vector<PlanStepTime> take() override;

 private:
  std::chrono::steady_clock::time_point begun_ = {};
  std::vector<PlanStepTime> times_;
};

}  // namespace ulp
