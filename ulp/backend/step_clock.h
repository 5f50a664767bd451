// Times the steps of a plan one by one. On the host a clock is read around each; a device puts
// events into its stream, so that nothing waits between steps and what is timed is the work and not
// its launch. A plan whose steps are recorded once and launched often must be recorded anew for
// every run while it is timed: each run has calls of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct CUstream_st;  // a CUDA stream, seen from outside

namespace ulp {

struct StepTime {
  double seconds = 0;  // over all runs
  uint64_t runs = 0;   // of a step with micro-batches several
};

class StepClock {
 public:
  virtual ~StepClock() = default;
  // Around the run of a plan's step, by its place in the plan; the stream is null on the host.
  // Begun steps end before another begins.
  virtual void begin(size_t step, CUstream_st* stream) = 0;
  virtual void end(size_t step, CUstream_st* stream) = 0;
  // What was timed since the last call, by step; waits for what is still at work. Steps that did
  // not run may be missing at the end.
  virtual std::vector<StepTime> take() = 0;
};

}  // namespace ulp
