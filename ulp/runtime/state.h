// What outlives a step and a plan: weights, running statistics, optimizer state, sums over micro-batches. One slot for each
// tensor, by name, shared by all graphs of a model.
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
  EncodeStats initial = {};  // what writing its first values reported

  // All of its bytes, as stored_parts (stored.h) finds its parts in them: read from the device, and written there.
  std::vector<uint8_t> bytes() const;
  void write(std::span<const uint8_t> bytes) const;
  std::vector<float> values() const;
};

// The bytes of a slot where they can be read here: in place on the host, elsewhere a copy.
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

  // Makes slots for what the plan has at Home::state and there is none for yet, and fills them as they start. Throws an
  // Error where one of that name has another shape or storage.
  void add(const Plan& plan, uint64_t seed);

  // Gives each slot the storage that the plan has for it, rounding to nearest where that holds less. One after the other,
  // the old and the new beside each other: returns the most memory that was in use, all state counted.
  // Random words, where a storage takes any, are those of the seed and the step that comes.
  size_t convert(const Plan& plan, uint64_t seed, uint32_t step);

  // The slots of a kind, to put them back as they were.
  StateCopy copy(Kind kind) const;
  void restore(const StateCopy& copy);

  // Throws an Error where there is none.
  const StateSlot& find(const std::string& name) const;
  // In the order of their names.
  const std::map<std::string, StateSlot>& slots() const { return slots_; }

 private:
  Memory& memory_;
  std::map<std::string, StateSlot> slots_;
};

// The weights and the optimizer state, kept beside themselves to put them back as they were.
class Snapshot {
 public:
  // What it takes of the plan's state.
  static size_t bytes(const Plan& plan);

  // The state must not get other slots while this lives.
  Snapshot(Memory& memory, const State& state, const Plan& plan);

  void take();
  void put_back() const;

 private:
  std::vector<const StateSlot*> slots_;
  Block block_;
};

}  // namespace ulp
