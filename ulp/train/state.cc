#include "ulp/train/state.h"

#include "ulp/base/error.h"
#include "ulp/train/init.h"

namespace ulp {

std::span<uint8_t> StateSlot::codes() const {
  return {block.data(), storage_size(storage, shape.elements()).code_bytes};
}

std::span<uint32_t> StateSlot::side() const {
  const StorageSize size = storage_size(storage, shape.elements());
  return {reinterpret_cast<uint32_t*>(block.data() + aligned_bytes(size.code_bytes)), size.side_words};
}

std::vector<float> StateSlot::values() const {
  std::vector<float> values(shape.elements());
  decode(storage, codes(), side(), values);
  return values;
}

void State::add(const Plan& plan, uint64_t seed) {
  const Graph& graph = plan.graph();
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    const TensorPlace& place = plan.place(id);
    if (place.home != Home::state || place.root != id) continue;
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
    StateSlot slot{tensor.name, tensor.shape, tensor.kind, storage, memory_.allocate(place.bytes)};
    if (tensor.kind != Kind::grad_sum) {
      std::vector<float> values(tensor.elements());
      fill_initial(tensor.init, seed, tensor.number, values);
      encode(storage, {}, values, slot.codes(), slot.side());
    }
    slots_.emplace(tensor.name, std::move(slot));
  }
}

const StateSlot& State::find(const std::string& name) const {
  const auto found = slots_.find(name);
  if (found == slots_.end()) fail("state", "there is no state tensor '{}'", name);
  return found->second;
}

}  // namespace ulp
