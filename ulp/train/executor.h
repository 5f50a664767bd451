// Runs a plan: step by step, on memory that others own, allocating nothing.
#pragma once

#include <span>
#include <vector>

#include "ulp/plan/plan.h"
#include "ulp/train/state.h"

namespace ulp {

class Executor {
 public:
  // The plan must outlive it.
  explicit Executor(const Plan& plan);

  // Where tensors lie: state by name, the rest in an arena of plan.step_bytes().
  void bind(const State& state, uint8_t* arena);
  // What a source reads in the next run: fp32 or int32.
  void feed(TensorId source, const void* values);

  // All phases, or those up to backward. Range events are gathered anew.
  void run(const StepState& state, bool update);
  // The steps of some phases, from first to last, both included. Range events are added to those that are there. What
  // updates report about writing state is kept apart from what the rest of the step reports, also where they run among it.
  void run(const StepState& state, Phase first, Phase last);
  void clear_stats();

  // A real tensor that the plan keeps to the end of a step, in fp32.
  std::span<const float> result(TensorId id) const;
  // One that is kept, decoded from whatever it is stored as.
  std::vector<float> values(TensorId id) const;
  std::span<const EncodeStats> stats() const { return stats_; }
  std::span<const EncodeStats> update_stats() const { return update_stats_; }
  std::span<const UpdateCounts> updates() const { return updates_; }

 private:
  const Plan& plan_;
  std::vector<uint8_t*> data_;
  std::vector<const void*> feeds_;
  std::vector<EncodeStats> stats_, update_stats_;  // by tensor
  std::vector<UpdateCounts> updates_;
  uint8_t* arena_ = nullptr;
};

}  // namespace ulp
