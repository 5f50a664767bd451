#include "ulp/runtime/state.h"

#include <algorithm>
#include <stdexcept>

#include "ulp/base/error.h"
#include "ulp/runtime/init.h"

namespace ulp {
namespace {

// Random words for what is written between steps: not those of the step's own updates.
RoundKey writing_key(uint64_t seed, uint32_t step, uint32_t tensor) {
  constexpr uint64_t kBetweenSteps = 0x6265747765656E00u;
  return {seed ^ kBetweenSteps, step, tensor, 0};
}

// Encodes in place on the host; for another device here, then copied there.
EncodeStats write_values(const StateSlot& slot, const Rounding& rounding, std::span<const float> values) {
  std::vector<uint8_t> made;
  const bool in_place = slot.block.device().on_host();
  if (!in_place) made.resize(slot.block.bytes());
  const StoredParts parts =
      stored_parts(slot.storage, in_place ? slot.block.data() : made.data(), values.size());
  const EncodeStats stats = encode(slot.storage, rounding, values, parts.codes, parts.side);
  if (!in_place) slot.write(made);
  return stats;
}

}  // namespace

std::vector<uint8_t> StateSlot::bytes() const {
  std::vector<uint8_t> bytes(block.bytes());
  block.device().download(bytes.data(), block.data(), bytes.size());
  return bytes;
}

void StateSlot::write(std::span<const uint8_t> bytes) const {
  if (bytes.size() != block.bytes()) throw std::logic_error("a slot is written with another number of bytes");
  block.device().upload(block.data(), bytes.data(), bytes.size());
}

SlotView::SlotView(const StateSlot& slot) {
  const bool in_place = slot.block.device().on_host();
  if (!in_place) copy_ = slot.bytes();
  parts_ = stored_parts(slot.storage, in_place ? slot.block.data() : copy_.data(), slot.shape.elements());
}

std::vector<float> StateSlot::values() const {
  std::vector<float> values(shape.elements());
  const SlotView view(*this);
  decode(storage, view.codes(), view.side(), values);
  return values;
}

void State::add(const Plan& plan, uint64_t seed) {
  const Graph& graph = plan.graph();
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const TensorPlace& place = plan.place(id);
    if (place.home != Home::state || place.base != id) continue;
    const TensorInfo& tensor = graph[id];
    const Storage& storage = plan.formats()[i].storage;
    if (const auto found = slots_.find(tensor.name); found != slots_.end()) {
      if (found->second.shape != tensor.shape || found->second.storage != storage) {
        fail("state", "'{}' is {} in {} in one graph and {} in {} in another", tensor.name,
             shape_text(found->second.shape), storage_name(found->second.storage), shape_text(tensor.shape),
             storage_name(storage));
      }
      continue;
    }
    StateSlot slot{tensor.name, tensor.shape, tensor.kind, storage, memory_.allocate(place.bytes), {}};
    if (tensor.kind != Kind::grad_sum) {
      std::vector<float> values(tensor.elements());
      fill_initial(tensor.init, seed, tensor.number, values);
      const Rounding rounding{.key = writing_key(seed, 0, tensor.number)};
      slot.initial = write_values(slot, rounding, values);
    }
    slots_.emplace(tensor.name, std::move(slot));
  }
}

size_t State::convert(const Plan& plan, uint64_t seed, uint32_t step) {
  const Graph& graph = plan.graph();
  size_t most = memory_.in_use();
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const TensorPlace& place = plan.place(id);
    if (place.home != Home::state || place.base != id) continue;
    StateSlot& slot = slots_.at(graph[id].name);
    const Storage& storage = plan.formats()[i].storage;
    if (slot.storage == storage) continue;
    const std::vector<float> values = slot.values();
    most = std::max(most, memory_.in_use() + aligned_bytes(place.bytes));
    StateSlot made{slot.name, slot.shape, slot.kind, storage, memory_.allocate(place.bytes), {}};
    const Rounding rounding{.key = writing_key(seed, step, graph[id].number)};
    write_values(made, rounding, values);
    slot = std::move(made);
  }
  return most;
}

void State::assign(const std::string& name, std::span<const float> values, uint64_t seed, uint32_t step) {
  const StateSlot& slot = find(name);
  if (values.size() != slot.shape.elements())
    throw std::logic_error("a slot is assigned another number of values");
  write_values(slot, {.key = writing_key(seed, step, tensor_number(name))}, values);
}

StateCopy State::copy(Kind kind) const {
  StateCopy copy;
  for (const auto& [name, slot] : slots_) {
    if (slot.kind == kind) copy[name] = slot.bytes();
  }
  return copy;
}

void State::restore(const StateCopy& copy) {
  for (const auto& [name, bytes] : copy) find(name).write(bytes);
}

const StateSlot& State::find(const std::string& name) const {
  const auto found = slots_.find(name);
  if (found == slots_.end()) fail("state", "there is no state tensor '{}'", name);
  return found->second;
}

namespace {

bool changed_by_updates(Kind kind) { return kind == Kind::weight || kind == Kind::optimizer; }

}  // namespace

size_t Snapshot::bytes(const Plan& plan) {
  size_t sum = 0;
  for (size_t i = 0; i < plan.graph().tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const TensorPlace& place = plan.place(id);
    if (place.home == Home::state && place.base == id && changed_by_updates(plan.graph()[id].kind))
      sum += place.bytes;
  }
  return sum;
}

Snapshot::Snapshot(Memory& memory, const State& state, const Plan& plan)
    : block_(memory.allocate(bytes(plan))) {
  for (const auto& [name, slot] : state.slots()) {
    if (changed_by_updates(slot.kind)) slots_.push_back(&slot);
  }
}

void Snapshot::take() {
  uint8_t* to = block_.data();
  for (const StateSlot* slot : slots_) {
    block_.device().copy(to, slot->block.data(), slot->block.bytes());
    to += slot->block.bytes();
  }
}

void Snapshot::put_back() const {
  const uint8_t* from = block_.data();
  for (const StateSlot* slot : slots_) {
    block_.device().copy(slot->block.data(), from, slot->block.bytes());
    from += slot->block.bytes();
  }
}

}  // namespace ulp
