// Runs a plan step by step on memory that others own, without allocating. On a device other than
// the host it has a block of its own (device_session.h), which bind takes from the state's memory,
// and launches recorded sequences.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ulp/backend/plan_clock.h"
#include "ulp/backend/recorder.h"
#include "ulp/plan/plan.h"
#include "ulp/runtime/device_session.h"
#include "ulp/runtime/state.h"

namespace ulp {

class Executor {
 public:
  // Bytes of device memory besides the arena; 0 on the host.
  static size_t device_bytes(const Plan& plan) { return DeviceSession::bytes(plan); }

  // The plan must outlive it.
  explicit Executor(const Plan& plan);

  // Where tensors are: state by name, the rest in an arena of plan.step_bytes(). On a device other
  // than the host the state's memory must outlive the executor.
  void bind(const State& state, uint8_t* arena);
  // What a source reads in the next run: fp32, int32 or bytes.
  void feed(TensorId source, const void* values);
  // Data in the memory of the backend that a node makes batches from, in all runs after bind.
  void feed_resident(TensorId source, const void* data);

  // All phases, or those up to backward. Range events start from zero.
  void run(const StepState& state, bool update);
  // The steps of the phases from first to last, both included. Range events are added to the
  // present ones. What updates report about writing state is kept separate from the rest of the
  // step, even if they run among it.
  void run(const StepState& state, Phase first, Phase last);
  void clear_stats();
  // What runs from now on is recorded, until called with null. On the host.
  void record(Recorder* recorder) { recorder_ = recorder; }
  // Times the plan's steps one by one, until called with null.
  void time_plan(PlanClock* clock);

  // Lets the device decide whether a step counts, by its gradients and the first of these sums.
  // Requires a backend that can, and a plan with a point between the last gradient and the first
  // update.
  void check_overflow_of(TensorId sums);
  bool checks_overflow() const { return checked_; }
  // All phases; updates change nothing if the check rejects the step. Range events are those of the
  // check, and are added to the present ones. Requires checks_overflow.
  void run_checked(const StepState& state);
  bool skipped() const;

  // A real tensor that the plan keeps to the end of a step, in fp32. Valid until the next run.
  std::span<const float> result(TensorId id) const;
  // A kept tensor, decoded from its storage.
  std::vector<float> values(TensorId id) const;
  // The same as stored bytes (stored.h).
  std::vector<uint8_t> bytes(TensorId id) const;
  std::span<const EncodeStats> stats() const { return stats_; }
  std::span<const EncodeStats> update_stats() const { return update_stats_; }
  std::span<const UpdateCounts> updates() const { return updates_; }

 private:
  void record_weights() const;
  void record_fp32(std::span<const NodeId> nodes) const;
  void run_on_device(const StepState& state, Phase first, Phase last, bool checks_inf);
  void make_found_inf();
  DeviceSession& session() const;

  const Plan& plan_;
  Device& device_;
  std::vector<uint8_t*> data_;
  std::vector<const void*> feeds_;
  // By tensor: these, or on a device other than the host the copies from there.
  std::vector<EncodeStats> own_stats_, own_update_stats_;
  std::vector<UpdateCounts> own_updates_;
  std::span<EncodeStats> stats_, update_stats_;
  std::span<UpdateCounts> updates_;
  uint8_t* arena_ = nullptr;
  PlanClock* clock_ = nullptr;
  Recorder* recorder_ = nullptr;
  // For a device other than the host.
  TensorId sums_;
  bool checked_ = false;
  bool clears_ = false;  // it clears the range events there
  std::unique_ptr<DeviceSession> session_;
  mutable std::map<int32_t, std::vector<float>> fetched_;  // results since the last run
};

}  // namespace ulp
