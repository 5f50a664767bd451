// What outlives a step and a plan: weights, running statistics, optimizer state, sums over
// micro-batches. One slot per tensor, by name, shared by all graphs of a model.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/plan/plan.h"
#include "ulp/tensor/memory.h"
#include "ulp/tensor/stored.h"

namespace ulp {

struct StateSlot {
  std::string name;
  Shape shape;
  Kind kind = Kind::weight;
  Storage storage;
  Block block;
  EncodeStats initial = {};  // what writing its initial values reported

  // All its bytes, with the parts at the offsets of stored_parts (stored.h): read from the device,
  // and written to it.
  std::vector<uint8_t> bytes() const;
  void write(std::span<const uint8_t> bytes) const;
  std::vector<float> values() const;
};

// A slot's bytes in host memory: in place on the host, otherwise a copy.
class SlotView {
 public:
  explicit SlotView(const StateSlot& slot);
  SlotView(const SlotView&) = delete;
  SlotView& operator=(const SlotView&) = delete;

  std::span<const uint8_t> codes() const { return parts_.codes; }
  std::span<const uint32_t> side() const { return parts_.side; }

 private:
  std::vector<uint8_t> copy_;
  StoredParts parts_;
};

// The bytes of some slots, by name.
using StateCopy = std::map<std::string, std::vector<uint8_t>>;

class State {
 public:
  explicit State(Memory& memory) : memory_(memory) {}

  Memory& memory() const { return memory_; }

  // Makes and initialises slots for tensors that the plan has at Home::state and that have none
  // yet. Throws an Error if an existing one has another shape or storage.
  void add(const Plan& plan, uint64_t seed);

  // Converts each slot to the plan's storage, rounding to nearest if that holds less. One slot
  // after the other, with old and new in memory together: returns the peak memory in use, all state
  // counted. Random words, if a storage needs any, are those of the seed and the coming step.
  size_t convert(const Plan& plan, uint64_t seed, uint32_t step);

  // Replaces the values of a slot, rounded to nearest in its storage. As many as it has.
  void assign(const std::string& name, std::span<const float> values, uint64_t seed, uint32_t step);

  // Copies the slots of a kind, and restores them.
  StateCopy copy(Kind kind) const;
  void restore(const StateCopy& copy);

  // Throws an Error if there is none.
  const StateSlot& find(const std::string& name) const;
  // In the order of their names.
  const std::map<std::string, StateSlot>& slots() const { return slots_; }

 private:
  Memory& memory_;
  std::map<std::string, StateSlot> slots_;
};

// A copy of the weights and the optimizer state, to restore them.
class Snapshot {
 public:
  // Bytes it takes for the plan's state.
  static size_t bytes(const Plan& plan);

  // The state must not get other slots during its life.
  Snapshot(Memory& memory, const State& state, const Plan& plan);

  void take();
  void put_back() const;

 private:
  std::vector<const StateSlot*> slots_;
  Block block_;
};

}  // namespace ulp
