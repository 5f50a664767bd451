#include "ulp/train/executor.h"

#include <algorithm>

#include "ulp/tensor/stored.h"

namespace ulp {

Executor::Executor(const Plan& plan)
    : plan_(plan),
      data_(plan.graph().tensor_count()),
      feeds_(plan.graph().tensor_count()),
      stats_(plan.graph().tensor_count()),
      update_stats_(plan.graph().tensor_count()),
      updates_(plan.graph().tensor_count()) {}

void Executor::bind(const State& state, uint8_t* arena) {
  arena_ = arena;
  const Graph& graph = plan_.graph();
  for (size_t i = 0; i < data_.size(); ++i) {
    const TensorPlace& place = plan_.place(TensorId{static_cast<int32_t>(i)});
    switch (place.home) {
      case Home::nowhere:
        data_[i] = nullptr;
        break;
      case Home::state:
        data_[i] = state.find(graph[place.root].name).block.data();
        break;
      case Home::step:
        data_[i] = arena + place.offset;
        break;
    }
  }
}

void Executor::feed(TensorId source, const void* values) {
  feeds_[static_cast<size_t>(source.index)] = values;
}

void Executor::clear_stats() {
  std::fill(stats_.begin(), stats_.end(), EncodeStats{});
  std::fill(update_stats_.begin(), update_stats_.end(), EncodeStats{});
  std::fill(updates_.begin(), updates_.end(), UpdateCounts{});
}

void Executor::run(const StepState& state, bool update) {
  clear_stats();
  run(state, Phase::forward, update ? Phase::update : Phase::backward);
}

void Executor::run(const StepState& state, Phase first, Phase last) {
  RunContext context;
  context.data = data_;
  context.feeds = feeds_;
  context.state = &state;
  context.updates = updates_.data();
  for (const PlanStep& step : plan_.steps()) {
    if (step.phase < first || step.phase > last) continue;
    context.stats = (step.phase == Phase::update ? update_stats_ : stats_).data();
    context.workspace = arena_ + step.workspace;
    step.task->run(context);
  }
}

std::span<const float> Executor::result(TensorId id) const {
  return {reinterpret_cast<const float*>(data_[static_cast<size_t>(id.index)]), plan_.graph()[id].elements()};
}

std::vector<float> Executor::values(TensorId id) const {
  const Storage& storage = plan_.formats()[static_cast<size_t>(id.index)].storage;
  std::vector<float> values(plan_.graph()[id].elements());
  const StoredParts parts = stored_parts(storage, data_[static_cast<size_t>(id.index)], values.size());
  decode(storage, parts.codes, parts.side, values);
  return values;
}

}  // namespace ulp
