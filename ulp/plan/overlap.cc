// Overlap: steps that run on the side stream, and preparation ahead of time.
#include <algorithm>

#include "ulp/plan/plan.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

size_t at(TensorId id) { return static_cast<size_t>(id.index); }

constexpr int kMostOverlapped = 6;  // steps that one may overlap with, at most

bool meet(const std::vector<size_t>& a, const std::vector<size_t>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](size_t x) { return std::find(b.begin(), b.end(), x) != b.end(); });
}

// Whether a step of one phase may continue into the other: phases that always run right after each
// other.
bool goes_on(Phase from, Phase to) { return to == from || (from == Phase::forward && to == Phase::backward); }

}  // namespace

// Adds workspaces and prepared data to the tensors' buffers and lays everything out; returns the
// arena's bytes. Steps overlap and prepare together if that takes hardly more than the peak without
// it; gaps may still waste counted room. `unmerged_peak` is the peak of a plan without merged steps;
// it has a value if some steps are merged.
size_t Plan::lay_out_steps(const PlanOptions& options, const Lives& lives,
                           std::optional<size_t> unmerged_peak, std::vector<Buffer>& buffers) {
  const std::vector<Buffer> tensors = buffers;
  const auto attempt = [&](bool overlap, bool together, bool early) {
    buffers = tensors;
    for (PlanStep& step : steps_) {
      step.live_until = 0;
      step.preparation.reset();
      step.prepares.clear();
    }
    if (overlap) overlap_steps(lives.life, lives.buffer_of, buffers);
    buffers = with_workspaces(buffers);
    if (together) prepare_together(buffers, tensors.size(), early);
    return ulp::lay_out(buffers);
  };
  const auto any = [&](auto&& has) { return std::any_of(steps_.begin(), steps_.end(), has); };
  const bool together = backend_.make_preparation != nullptr &&
                        any([](const PlanStep& step) { return step.task->prepared() > 0; });
  const bool overlap = options.overlap && any([](const PlanStep& step) { return step.kernel->side_stream; });
  if (!together && !overlap) return attempt(false, false, false);
  const size_t least = unmerged_peak ? *unmerged_peak : attempt(false, false, false),
               most = options.tight ? least : least + least / kPeakSlack;
  for (const bool also : {true, false}) {
    if (also && !overlap) continue;
    for (const bool early : {true, false}) {
      if (early && !(together && also)) continue;
      if (const size_t bytes = attempt(also, together, early); bytes <= most) return bytes;
    }
  }
  return attempt(false, false, false);
}

// A step that may run on the side stream does so until something reads what it writes or reports,
// or overwrites what it reads, or until forward and backward end, if that takes no more memory:
// what it touches stays live until then. `life`: of tensors; `buffer_of`: their buffers, negative:
// none.
void Plan::overlap_steps(std::span<const TensorPlace> life, std::span<const int> buffer_of,
                         std::vector<Buffer>& buffers) {
  const int end = static_cast<int>(steps_.size());
  std::vector<std::vector<size_t>> read(steps_.size()), written(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto when = static_cast<size_t>(moment(i));
    for (const auto* nodes : {&steps_[i].inlined, &steps_[i].roots}) {
      for (const NodeId id : *nodes) {
        for (const TensorId in : graph_[id].in) read[when].push_back(at(bases_[at(in)]));
      }
    }
    for (const NodeId id : steps_[i].roots) {
      for (const TensorId out : graph_[id].out) written[when].push_back(at(bases_[at(out)]));
    }
  }
  std::vector<size_t> alive(steps_.size());
  for (const Buffer& buffer : buffers) {
    for (int when = buffer.first; when <= buffer.last; ++when)
      alive[static_cast<size_t>(when)] += buffer.bytes;
  }
  for (size_t i = 0; i < steps_.size(); ++i) alive[i] += aligned_bytes(steps_[i].workspace_bytes());
  const size_t peak = *std::max_element(alive.begin(), alive.end()), room = peak + peak / kPeakSlack / 2;
  // If a result takes over an operand's buffer, the operand is overwritten.
  const auto overwritten = [&](size_t tensor, int when) {
    for (size_t i = 0; i < life.size(); ++i) {
      if (i != tensor && at(bases_[i]) == i && buffer_of[i] == buffer_of[tensor] && life[i].first == when)
        return true;
    }
    return false;
  };

  // Whether step a or b may report range events that the other reads. A merged pair counts as one
  // step: both of its halves are checked.
  const auto range_meets = [&](size_t a, size_t b) {
    for (size_t i = a; i == a || (i < steps_.size() && steps_[i].merged); ++i) {
      for (size_t j = b; j == b || (j < steps_.size() && steps_[j].merged); ++j) {
        if (may_report_for(i, j) || may_report_for(j, i)) return true;
      }
    }
    return false;
  };

  for (int when = 0; when < end; ++when) {
    const auto now = static_cast<size_t>(when);
    PlanStep& step = steps_[now];
    if (!step.kernel->side_stream) continue;
    std::vector<size_t> kept;  // in the arena
    for (const auto* list : {&read[now], &written[now]}) {
      for (const size_t i : *list) {
        if (buffer_of[i] >= 0 && std::find(kept.begin(), kept.end(), i) == kept.end()) kept.push_back(i);
      }
    }
    int until = when + 1;
    for (; until < std::min(end, when + 1 + kMostOverlapped); ++until) {
      const auto other = static_cast<size_t>(until);
      if (!goes_on(step.phase, steps_[other].phase) || meet(read[other], written[now]) ||
          meet(written[other], written[now]) || meet(written[other], read[now]) || range_meets(now, other) ||
          std::any_of(kept.begin(), kept.end(), [&](size_t i) { return overwritten(i, until); }))
        break;
      size_t more = aligned_bytes(step.task->workspace());
      for (const size_t i : kept) {
        const Buffer& buffer = buffers[static_cast<size_t>(buffer_of[i])];
        more += buffer.last < until ? aligned_bytes(buffer.bytes) : 0;
      }
      if (alive[other] + more > room) break;
      alive[other] += more;
      for (const size_t i : kept) {
        Buffer& buffer = buffers[static_cast<size_t>(buffer_of[i])];
        buffer.last = std::max(buffer.last, until);
      }
    }
    if (until > when + 1) step.live_until = until;
  }
}

bool Plan::writes_state_of(int writer, int reader) const {
  for (const NodeId from : steps_[static_cast<size_t>(writer)].roots) {
    for (const TensorId out : graph_[from].out) {
      for (const auto* nodes :
           {&steps_[static_cast<size_t>(reader)].inlined, &steps_[static_cast<size_t>(reader)].roots}) {
        for (const NodeId to : *nodes) {
          for (const TensorId in : graph_[to].in) {
            if (is_state(graph_[bases_[at(in)]].kind) && bases_[at(in)] == bases_[at(out)]) return true;
          }
        }
      }
    }
  }
  return false;
}

// Whether state that the reader reads is written by a step, or by one that may run beside it.
bool Plan::state_changes(int when, int reader) const {
  for (int i = std::max(0, when - kMostOverlapped); i <= when; ++i) {
    if ((i == when || steps_[static_cast<size_t>(i)].live_until > when) && writes_state_of(i, reader))
      return true;
  }
  return false;
}

// Prepares what tasks derive from state for as many tasks of a phase at once as there is room for:
// where few bytes are live one launch serves many, near the peak each has its own. `workspaces`:
// the first workspace buffer, one per step. Buffers for shared preparation are added in the order
// of the steps that do it.
void Plan::prepare_together(std::vector<Buffer>& buffers, size_t workspaces, bool early) {
  std::vector<size_t> alive(steps_.size());
  for (const Buffer& buffer : buffers) {
    for (int when = buffer.first; when <= buffer.last; ++when)
      alive[static_cast<size_t>(when)] += buffer.bytes;
  }
  const size_t peak = alive.empty() ? 0 : *std::max_element(alive.begin(), alive.end());
  const size_t room = peak + peak / kPeakSlack / 2;
  std::vector<std::vector<int>> groups;
  for (int when = 0; when < static_cast<int>(steps_.size()); ++when) {
    const PlanStep& step = steps_[static_cast<size_t>(when)];
    const size_t bytes = aligned_bytes(step.task->prepared());
    // Two steps that are one task prepare for themselves.
    if (bytes == 0 || step.merged || step.merged_task != nullptr) continue;
    const auto joins = [&](int first) {
      if (steps_[static_cast<size_t>(first)].phase != step.phase) return false;
      for (int i = first; i < when; ++i) {
        if (alive[static_cast<size_t>(i)] + bytes > room || state_changes(i, when)) return false;
      }
      return true;
    };
    if (groups.empty() || !joins(groups.back().front())) {
      groups.push_back({when});
      continue;
    }
    for (int i = groups.back().front(); i < when; ++i) alive[static_cast<size_t>(i)] += bytes;
    groups.back().push_back(when);
  }
  int after = 0;  // groups stay in order
  for (const std::vector<int>& group : groups) {
    if (group.size() < 2) continue;
    std::vector<Task*> tasks;
    size_t all = 0;
    for (const int member : group) all += aligned_bytes(steps_[static_cast<size_t>(member)].task->prepared());
    // `early`: as early in the phase as there is room, so that it can overlap with other steps.
    int begin = group.front();
    for (int i = begin - 1; early && i >= after; --i) {
      const PlanStep& step = steps_[static_cast<size_t>(i)];
      if (step.phase != steps_[static_cast<size_t>(group.front())].phase ||
          alive[static_cast<size_t>(i)] + all > room ||
          std::any_of(group.begin(), group.end(), [&](int member) { return state_changes(i, member); }))
        break;
      alive[static_cast<size_t>(i)] += all;
      if (!step.merged) begin = i;
    }
    after = begin + 1;
    for (const int member : group) {
      Task* task = steps_[static_cast<size_t>(member)].task.get();
      tasks.push_back(task);
      buffers[workspaces + static_cast<size_t>(member)].bytes =
          aligned_bytes(task->workspace() - task->prepared());
      const int last = std::max(member, steps_[static_cast<size_t>(member)].live_until - 1);
      buffers.push_back({aligned_bytes(task->prepared()), begin, last});
    }
    PlanStep& first = steps_[static_cast<size_t>(begin)];
    first.prepares = group;
    first.preparation = backend_.make_preparation(tasks);
  }
}

}  // namespace ulp
