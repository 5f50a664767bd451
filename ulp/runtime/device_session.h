// What an executor keeps on a device other than the host, and how it runs there. The step state,
// range events and feeds have a block of device memory and pinned staging memory on the host that
// mirrors it. A sequence of phases is recorded once, from copy-in to copy-out, and then launched on
// demand.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ulp/backend/plan_clock.h"
#include "ulp/plan/plan.h"
#include "ulp/tensor/memory.h"

namespace ulp {

class DeviceSession {
 public:
  // Bytes of device memory; 0 if the plan's device is the host.
  static size_t bytes(const Plan& plan);

  // Plan and memory must outlive it.
  DeviceSession(const Plan& plan, Memory& memory);
  ~DeviceSession();
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;

  Memory& memory() const { return memory_; }

  // Addresses of tensors, by tensor. Discards all recordings.
  void bind(std::span<uint8_t* const> data, uint8_t* arena);
  // Data in device memory that a node makes batches from (ulp/graph/ops/batch.h): it is fed where
  // it lies. Discards all recordings.
  void set_resident(TensorId source, const void* data);
  // What decides on the device whether a step counts; null: nothing.
  void set_found_inf(std::unique_ptr<Task> check_found_inf);
  // Whether all steps that make gradients come before all that use them. Not so if updates run
  // among the rest.
  static bool has_place_for_check(const Plan& plan);

  // While steps are timed a sequence is recorded anew for every run. Null: they are not timed.
  void time_plan(PlanClock* clock);

  struct Sequence {
    Phase first = Phase::forward, last = Phase::update;
    bool clears = false;  // clears the range events first
    bool checks_inf = false;
    auto operator<=>(const Sequence&) const = default;
  };
  // Feeds by tensor: what sources read if the sequence has a forward phase.
  // Blocks until done.
  void run(const Sequence& sequence, const StepState& state, std::span<const void* const> feeds);

  // As of the last run. If that run had steps on both sides of an overflow check, range events are
  // those of the check.
  std::span<EncodeStats> stats() const;
  std::span<EncodeStats> update_stats() const;
  std::span<UpdateCounts> updates() const;
  bool skipped() const;
  // Null if the tensor is not copied out: it is no result, not fp32, or large.
  const float* result(TensorId id) const;

 private:
  struct Copied {
    TensorId id;
    size_t bytes, offset;
  };
  // Offsets in the block and in its mirror. Results are in the mirror only.
  struct Layout {
    explicit Layout(const Plan& plan);
    size_t state = 0, stats = 0, update_stats = 0, updates = 0, end = 0;
    std::vector<Copied> feeds;
    size_t device_bytes = 0;
    std::vector<Copied> results;
    size_t staging_bytes = 0;
  };

  void enqueue(const Sequence& sequence, Stream stream);
  void copy_in(const Sequence& sequence, Stream stream);
  void copy_out(size_t from, size_t to, Stream stream);
  void copy_results(bool early, Stream stream);

  const Plan& plan_;
  Memory& memory_;
  Device& device_;
  const Layout layout_;
  Block block_;
  uint8_t* staging_ = nullptr;
  std::vector<uint8_t*> data_;
  std::vector<const void*> feeds_;  // in the block, or where resident data lies
  uint8_t* arena_ = nullptr;
  PlanClock* clock_ = nullptr;
  std::unique_ptr<Task> found_inf_;
  std::map<Sequence, std::unique_ptr<Recording>> recordings_;
};

}  // namespace ulp
