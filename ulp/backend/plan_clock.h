// Times the steps of a plan one by one. On the host it reads a clock around each step. On a device
// it puts events into the stream, so nothing waits between steps, and the work is timed and not its
// launch. A recorded plan must be recorded anew for every timed run: each run has its own events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct CUstream_st;  // a CUDA stream, seen from outside

namespace ulp {

struct PlanStepTime {
  double seconds = 0;  // over all runs
  uint64_t runs = 0;   // of a step with micro-batches several
};

class PlanClock {
 public:
  virtual ~PlanClock() = default;
  // Called around each step of the plan. `step` is its place in the plan; the stream is null on the
  // host. A step ends before another begins.
  virtual void begin(size_t step, CUstream_st* stream) = 0;
  virtual void end(size_t step, CUstream_st* stream) = 0;
  // Waits for running work and returns what was timed since the last call, by step. Steps that did
  // not run may be missing at the end.
  virtual std::vector<PlanStepTime> take() = 0;
};

}  // namespace ulp
