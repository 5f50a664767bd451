#include "ulp/runtime/device_session.h"
#include "ulp/runtime/run_step.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/graph/format.h"
#include "ulp/graph/ops/source.h"

namespace ulp {
namespace {

static_assert(std::is_trivially_copyable_v<StepState> && std::is_trivially_copyable_v<EncodeStats> &&
              std::is_trivially_copyable_v<UpdateCounts>);

// Results up to this size are copied back with every run.
constexpr size_t kSmallResult = 4096;

size_t at(TensorId id) { return static_cast<size_t>(id.index); }

}  // namespace

DeviceSession::Layout::Layout(const Plan& plan) {
  const Graph& graph = plan.graph();
  size_t offset = 0;
  const auto book = [&](size_t bytes) {
    const size_t begin = offset;
    offset += aligned_bytes(bytes);
    return begin;
  };
  // The step state goes in and comes out.
  state = book(sizeof(StepState));
  stats = book(sizeof(EncodeStats) * graph.tensor_count());
  update_stats = book(sizeof(EncodeStats) * graph.tensor_count());
  updates = book(sizeof(UpdateCounts) * graph.tensor_count());
  end = offset;
  for (const Node& node : graph.nodes()) {
    if (!is_source(node)) continue;
    const TensorInfo& tensor = graph[node.out[0]];
    const size_t bytes = element_bytes(tensor.element) * tensor.elements();
    feeds.push_back({node.out[0], bytes, book(bytes)});
  }
  device_bytes = offset;
  for (const TensorId id : plan.results()) {
    const TensorInfo& tensor = graph[id];
    const size_t bytes = sizeof(float) * tensor.elements();
    const bool fp32 = tensor.element == Element::real && is_fp32(plan.formats()[at(id)].storage);
    if (fp32 && bytes <= kSmallResult) results.push_back({id, bytes, book(bytes)});
  }
  staging_bytes = offset;
}

size_t DeviceSession::bytes(const Plan& plan) {
  return device_of(plan.backend()).on_host() ? 0 : Layout(plan).device_bytes;
}

DeviceSession::DeviceSession(const Plan& plan, Memory& memory)
    : plan_(plan),
      memory_(memory),
      device_(memory.device()),
      layout_(plan),
      block_(memory.allocate(layout_.device_bytes)),
      staging_(device_.allocate_staging(layout_.staging_bytes)),
      feeds_(plan.graph().tensor_count()) {
  std::memset(staging_, 0, layout_.staging_bytes);
  for (const Copied& feed : layout_.feeds) feeds_[at(feed.id)] = block_.data() + feed.offset;
}

DeviceSession::~DeviceSession() { device_.release_staging(staging_, layout_.staging_bytes); }

void DeviceSession::bind(std::span<uint8_t* const> data, uint8_t* arena) {
  recordings_.clear();
  data_.assign(data.begin(), data.end());
  arena_ = arena;
}

void DeviceSession::set_resident(TensorId source, const void* data) {
  recordings_.clear();
  feeds_[at(source)] = data;
}

void DeviceSession::set_found_inf(std::unique_ptr<Task> check_found_inf) {
  if (check_found_inf != nullptr && check_found_inf->workspace() > 0)
    throw std::logic_error("the found_inf task has no workspace");
  recordings_.clear();
  found_inf_ = std::move(check_found_inf);
}

void DeviceSession::time_plan(PlanClock* clock) {
  recordings_.clear();
  clock_ = clock;
}

bool DeviceSession::has_place_for_check(const Plan& plan) {
  return std::is_sorted(plan.steps().begin(), plan.steps().end(), [](const PlanStep& a, const PlanStep& b) {
    return (a.phase >= Phase::recompute) < (b.phase >= Phase::recompute);
  });
}

void DeviceSession::run(const Sequence& sequence, const StepState& state,
                        std::span<const void* const> feeds) {
  std::memcpy(staging_ + layout_.state, &state, sizeof state);
  if (sequence.first == Phase::forward) {
    for (const Copied& feed : layout_.feeds) {
      const void* from = feeds[at(feed.id)];
      if (from == nullptr)
        fail("backend", "nothing is fed to '{}'", plan_.graph()[plan_.graph()[feed.id].producer].name);
      std::memcpy(staging_ + feed.offset, from, feed.bytes);
    }
  }
  if (clock_ != nullptr) recordings_.clear();
  std::unique_ptr<Recording>& recording = recordings_[sequence];
  if (recording == nullptr) {
    recording = device_.record([this, sequence](Stream stream) { enqueue(sequence, stream); });
  }
  recording->launch();
  device_.wait();
}

void DeviceSession::copy_in(const Sequence& sequence, Stream stream) {
  const size_t from = layout_.state;
  device_.copy_async(block_.data() + from, staging_ + from, layout_.stats - from, stream);
  if (sequence.first == Phase::forward) {
    for (const Copied& feed : layout_.feeds)
      device_.copy_async(block_.data() + feed.offset, staging_ + feed.offset, feed.bytes, stream);
  }
  if (sequence.clears)
    device_.clear_async(block_.data() + layout_.stats, layout_.end - layout_.stats, stream);
}

void DeviceSession::copy_out(size_t from, size_t to, Stream stream) {
  device_.copy_async(staging_ + from, block_.data() + from, to - from, stream);
}

void DeviceSession::enqueue(const Sequence& sequence, Stream stream) {
  copy_in(sequence, stream);
  RunContext context;
  context.data = data_;
  context.feeds = feeds_;
  context.state = reinterpret_cast<const StepState*>(block_.data() + layout_.state);
  context.updates = reinterpret_cast<UpdateCounts*>(block_.data() + layout_.updates);
  context.stream = stream;
  auto* stats = reinterpret_cast<EncodeStats*>(block_.data() + layout_.stats);
  auto* update_stats = reinterpret_cast<EncodeStats*>(block_.data() + layout_.update_stats);
  // If the sequence continues past a check, what is recomputed after it reports nothing of its own.
  const bool cut = sequence.first < Phase::recompute && has_place_for_check(plan_);
  bool before = cut;
  const auto in_sequence = [&](const PlanStep& step) {
    return step.phase >= sequence.first && step.phase <= sequence.last;
  };
  // Steps that run on the side stream, and the events that mark their ends.
  std::vector<std::pair<int, std::shared_ptr<void>>> overlapped;
  const auto wait_until = [&](int number) {
    std::erase_if(overlapped, [&](const auto& open) {
      if (open.first > number) return false;
      device_.wait_for(open.second, stream);
      return true;
    });
  };
  // While steps are timed, preparation counts for the first step that needs it: that step, and the
  // one that prepares.
  std::map<size_t, size_t> timed;
  const auto all = static_cast<int>(plan_.steps().size());
  const auto check_found_inf = [&] {
    wait_until(all);
    context.stats = stats;
    context.workspace = nullptr;
    context.prepared = nullptr;
    if (sequence.checks_inf) found_inf_->run(context);
    before = false;
    // Updates need not wait for the copies, unless something is recomputed before them that would
    // change what is copied.
    const bool changes = std::any_of(plan_.steps().begin(), plan_.steps().end(), [&](const PlanStep& step) {
      return in_sequence(step) && step.phase >= Phase::recompute && step.phase < Phase::update;
    });
    const bool overlaps = !changes && clock_ == nullptr;
    const Stream to = overlaps ? device_.side_stream(stream) : stream;
    copy_out(layout_.state, layout_.update_stats, to);
    copy_results(true, to);
    if (overlaps) overlapped.emplace_back(all, device_.mark(to));
  };
  for (const PlanStep& step : plan_.steps()) {
    if (!in_sequence(step) || step.merged) continue;
    if (before && step.phase >= Phase::recompute) check_found_inf();
    context.stats = step.phase == Phase::update ? update_stats : stats;
    const auto number = static_cast<size_t>(&step - plan_.steps().data());
    wait_until(static_cast<int>(number));
    if (step.preparation != nullptr) {
      const int needed = step.prepares.front();
      const bool overlaps = clock_ == nullptr && needed > static_cast<int>(number);
      if (clock_ != nullptr) {
        timed.emplace(static_cast<size_t>(needed), number);
      } else {
        if (overlaps) context.stream = device_.side_stream(stream);
        prepare_plan_step(plan_, number, arena_, context);
        if (overlaps) overlapped.emplace_back(needed, device_.mark(context.stream));
        context.stream = stream;
      }
    }
    if (clock_ == nullptr && step.live_until > static_cast<int>(number) + 1) {
      context.stream = device_.side_stream(stream);
      run_task(plan_, number, arena_, context);
      overlapped.emplace_back(step.live_until, device_.mark(context.stream));
      context.stream = stream;
      continue;
    }
    if (clock_ != nullptr) clock_->begin(number, stream);
    if (const auto late = timed.find(number); late != timed.end())
      prepare_plan_step(plan_, late->second, arena_, context);
    run_task(plan_, number, arena_, context);
    if (clock_ != nullptr) clock_->end(number, stream);
  }
  if (before) check_found_inf();
  wait_until(all);
  copy_out(cut ? layout_.update_stats : layout_.state, layout_.end, stream);
  if (!cut) copy_results(true, stream);
  copy_results(false, stream);
}

// Copies the results made before a check, or the others.
void DeviceSession::copy_results(bool early, Stream stream) {
  for (const Copied& result : layout_.results) {
    const NodeId producer = plan_.graph()[result.id].producer;
    const bool is_early = producer && plan_.graph()[producer].phase < Phase::recompute;
    if (is_early == early)
      device_.copy_async(staging_ + result.offset, data_[at(result.id)], result.bytes, stream);
  }
}

std::span<EncodeStats> DeviceSession::stats() const {
  return {reinterpret_cast<EncodeStats*>(staging_ + layout_.stats), plan_.graph().tensor_count()};
}

std::span<EncodeStats> DeviceSession::update_stats() const {
  return {reinterpret_cast<EncodeStats*>(staging_ + layout_.update_stats), plan_.graph().tensor_count()};
}

std::span<UpdateCounts> DeviceSession::updates() const {
  return {reinterpret_cast<UpdateCounts*>(staging_ + layout_.updates), plan_.graph().tensor_count()};
}

bool DeviceSession::skipped() const {
  StepState state;
  std::memcpy(&state, staging_ + layout_.state, sizeof state);
  return state.skip != 0;
}

const float* DeviceSession::result(TensorId id) const {
  for (const Copied& result : layout_.results) {
    if (result.id == id) return reinterpret_cast<const float*>(staging_ + result.offset);
  }
  return nullptr;
}

}  // namespace ulp
