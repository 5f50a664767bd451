#include "ulp/runtime/executor.h"
#include "ulp/runtime/run_step.h"

#include <algorithm>
#include <stdexcept>

#include "ulp/backend/found_inf.h"
#include "ulp/tensor/stored.h"

namespace ulp {

Executor::Executor(const Plan& plan)
    : plan_(plan),
      device_(device_of(plan.backend())),
      data_(plan.graph().tensor_count()),
      feeds_(plan.graph().tensor_count()) {
  if (!device_.on_host()) return;
  own_stats_.resize(data_.size());
  own_update_stats_.resize(data_.size());
  own_updates_.resize(data_.size());
  stats_ = own_stats_;
  update_stats_ = own_update_stats_;
  updates_ = own_updates_;
}

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
        data_[i] = state.find(graph[place.base].name).block.data();
        break;
      case Home::step:
        data_[i] = arena + place.offset;
        break;
    }
  }
  if (device_.on_host()) return;
  if (&state.memory().device() != &device_) throw std::logic_error("the state is on another device");
  if (session_ == nullptr || &session_->memory() != &state.memory()) {
    session_.reset();
    session_ = std::make_unique<DeviceSession>(plan_, state.memory());
    stats_ = session_->stats();
    update_stats_ = session_->update_stats();
    updates_ = session_->updates();
    session_->time_plan(clock_);
    make_found_inf();
  }
  session_->bind(data_, arena);
}

void Executor::feed(TensorId source, const void* values) {
  feeds_[static_cast<size_t>(source.index)] = values;
}

void Executor::feed_resident(TensorId source, const void* data) {
  feed(source, data);
  if (!device_.on_host()) session().set_resident(source, data);
}

DeviceSession& Executor::session() const {
  if (session_ == nullptr) throw std::logic_error("there is no device, or nothing is bound to it");
  return *session_;
}

void Executor::clear_stats() {
  std::fill(stats_.begin(), stats_.end(), EncodeStats{});
  std::fill(update_stats_.begin(), update_stats_.end(), EncodeStats{});
  std::fill(updates_.begin(), updates_.end(), UpdateCounts{});
  clears_ = true;
}

void Executor::time_plan(PlanClock* clock) {
  clock_ = clock;
  if (session_ != nullptr) session_->time_plan(clock);
}

void Executor::check_overflow_of(TensorId sums) {
  sums_ = sums;
  checked_ = !device_.on_host() && plan_.backend().make_found_inf != nullptr &&
             DeviceSession::has_place_for_check(plan_);
  if (session_ != nullptr) make_found_inf();
}

void Executor::make_found_inf() {
  if (!checked_) return;
  session_->set_found_inf(
      plan_.backend().make_found_inf(plan_.context(), checked_gradients(plan_.graph()), sums_));
}

void Executor::run(const StepState& state, bool update) {
  clear_stats();
  run(state, Phase::forward, update ? Phase::update : Phase::backward);
}

void Executor::run(const StepState& state, Phase first, Phase last) {
  if (!device_.on_host()) {
    run_on_device(state, first, last, false);
    return;
  }
  RunContext context;
  context.data = data_;
  context.feeds = feeds_;
  context.state = &state;
  context.updates = updates_.data();
  context.recorder = recorder_;
  if (recorder_ != nullptr && first == Phase::forward && state.micro_batch == 0) record_weights();
  for (const PlanStep& step : plan_.steps()) {
    if (step.phase < first || step.phase > last || step.merged) continue;
    context.stats = (step.phase == Phase::update ? update_stats_ : stats_).data();
    const auto number = static_cast<size_t>(&step - plan_.steps().data());
    if (clock_ != nullptr) clock_->begin(number, nullptr);
    run_plan_step(plan_, number, arena_, context);
    if (clock_ != nullptr) clock_->end(number, nullptr);
    if (recorder_ != nullptr) record_fp32(step.roots);
  }
}

// Weights change among the steps of a plan; recorded is what the step began with.
void Executor::record_weights() const {
  const Graph& graph = plan_.graph();
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (graph[id].kind == Kind::weight && recorder_->wants(id) && data_[i] != nullptr)
      recorder_->add(id, values(id));
  }
}

// Nobody rounds these, so nobody else sees them when they are written.
void Executor::record_fp32(std::span<const NodeId> nodes) const {
  for (const NodeId node : nodes) {
    for (const TensorId id : plan_.graph()[node].out) {
      const TensorInfo& tensor = plan_.graph()[id];
      const auto i = static_cast<size_t>(id.index);
      if (tensor.element != Element::real || is_state(tensor.kind) || !recorder_->wants(id)) continue;
      if (data_[i] == nullptr || !is_fp32(plan_.formats()[i].storage)) continue;
      recorder_->add(id, {reinterpret_cast<const float*>(data_[i]), tensor.elements()});
    }
  }
}

void Executor::run_checked(const StepState& state) {
  if (!checked_) throw std::logic_error("nothing on the device checks the gradients of this plan");
  run_on_device(state, Phase::forward, Phase::update, true);
}

bool Executor::skipped() const { return session().skipped(); }

void Executor::run_on_device(const StepState& state, Phase first, Phase last, bool checks_inf) {
  fetched_.clear();
  session().run({first, last, clears_, checks_inf}, state, feeds_);
  clears_ = false;
}

std::span<const float> Executor::result(TensorId id) const {
  const size_t elements = plan_.graph()[id].elements();
  if (device_.on_host()) {
    return {reinterpret_cast<const float*>(data_[static_cast<size_t>(id.index)]), elements};
  }
  if (const float* copied = session().result(id)) return {copied, elements};
  const auto [fetched, fresh] = fetched_.try_emplace(id.index, elements);
  if (fresh) {
    device_.download(fetched->second.data(), data_[static_cast<size_t>(id.index)], elements * sizeof(float));
  }
  return fetched->second;
}

std::vector<uint8_t> Executor::bytes(TensorId id) const {
  const Storage& storage = plan_.formats()[static_cast<size_t>(id.index)].storage;
  std::vector<uint8_t> bytes(tensor_bytes(plan_.graph()[id], storage));
  device_.download(bytes.data(), data_[static_cast<size_t>(id.index)], bytes.size());
  return bytes;
}

std::vector<float> Executor::values(TensorId id) const {
  const Storage& storage = plan_.formats()[static_cast<size_t>(id.index)].storage;
  std::vector<float> values(plan_.graph()[id].elements());
  std::vector<uint8_t> copy;
  if (!device_.on_host()) copy = bytes(id);
  uint8_t* data = device_.on_host() ? data_[static_cast<size_t>(id.index)] : copy.data();
  const StoredParts parts = stored_parts(storage, data, values.size());
  decode(storage, parts.codes, parts.side, values);
  return values;
}

}  // namespace ulp
