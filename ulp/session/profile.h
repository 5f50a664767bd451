// Where the time of a training step goes: its plan's steps timed one by one and gathered by operator and kernel, products also by
// the formats of their operands, with the bytes and the operations that each must do.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/backend/step_clock.h"
#include "ulp/plan/plan.h"
#include "ulp/session/engine.h"

namespace ulp {

// What a step of a plan must move: every tensor that it reads and every one that it writes, once, as they are stored.
// State that is updated is both. What is computed inside the step is neither. Two steps that are one task count as one, the first.
size_t moved_bytes(const Plan& plan, const PlanStep& step);
// Multiplications and additions of its products, each counted.
double product_operations(const Plan& plan, const PlanStep& step);

// What the two operands of its product are stored as, or rounded to where they are read: "bf16 x fp(4,3,4)". "" where it is none.
std::string product_formats(const Plan& plan, const PlanStep& step);

// Of a whole training step, all of its micro-batches. Gradients that are made twice move bytes twice, but are no more
// work done: their second products do not count.
struct StepWork {
  double bytes = 0, operations = 0;
};
StepWork step_work(const Plan& plan, int64_t micro_batches);

// Of all steps of a plan with the same operator, kernel and product_formats, in one training step. Two steps that are one task have both operators' names.
struct KernelTime {
  std::string op, kernel, formats;
  double seconds = 0;
  uint64_t calls = 0;
  double bytes = 0, operations = 0;
};

// Calls `train` so many times (at least once), which must make one step with the engine, while the clock times its
// plan's steps: by kernel the medians over those calls, the longest first.
std::vector<KernelTime> profile_steps(Engine& engine, StepClock& clock, int64_t count,
                                      const std::function<void()>& train);

// Of a backend whose tasks are done when they return.
class HostClock : public StepClock {
 public:
  void begin(size_t step, CUstream_st* stream) override;
  void end(size_t step, CUstream_st* stream) override;
  std::vector<StepTime> take() override;

 private:
  std::chrono::steady_clock::time_point begun_ = {};
  std::vector<StepTime> times_;
};

}  // namespace ulp
