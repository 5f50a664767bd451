// Merging two consecutive steps into one task.
#include <algorithm>

#include "ulp/plan/plan.h"
#include "ulp/tensor/memory.h"

namespace ulp {

// Adds a workspace for each step.
std::vector<Buffer> Plan::with_workspaces(const std::vector<Buffer>& tensors) const {
  std::vector<Buffer> made = tensors;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const int when = static_cast<int>(i);
    made.push_back(
        {aligned_bytes(steps_[i].workspace_bytes()), when, std::max(when, steps_[i].live_until - 1)});
  }
  return made;
}

// Merges a step with the next one if the backend can and there is room: everything that either
// needs is then live at once. Returns the bytes of an arena without any merging, or nothing if
// there are no merged pairs. Pairs may exceed that by at most half the slack; the other half is for
// overlap. `lives` are afterwards those with merged pairs.
std::optional<size_t> Plan::merge_steps(const PlanOptions& options, Lives& lives) {
  if (!options.merge || backend_.make_merged == nullptr) return {};
  const std::vector<Buffer> unmerged = with_workspaces(lives.buffers);
  const size_t peak = most_alive(unmerged);

  struct Pair {
    size_t first, bytes;
  };
  std::vector<Pair> pairs;
  for (size_t i = 0; i + 1 < steps_.size(); ++i) {
    PlanStep &first = steps_[i], &second = steps_[i + 1];
    if (first.phase != second.phase || first.kernel->side_stream || second.kernel->side_stream) continue;
    // A range is complete when all of the first is done.
    if (may_report_for(i, i + 1)) continue;
    size_t bytes = 0;
    for (const Buffer& buffer : unmerged) {
      if (buffer.first <= static_cast<int>(i) + 1 && buffer.last >= static_cast<int>(i))
        bytes += buffer.bytes;
    }
    if (bytes > (options.tight ? peak : peak + peak / kPeakSlack / 2)) continue;
    first.merged_task = backend_.make_merged(*first.task, *second.task);
    if (first.merged_task == nullptr) continue;
    second.merged = true;
    pairs.push_back({i, bytes});
    ++i;
  }
  if (pairs.empty()) return {};
  std::vector<Buffer> placed = unmerged;
  const size_t least = ulp::lay_out(placed), most = options.tight ? least : least + least / kPeakSlack / 2;
  // Gaps may cost more than was counted. Then pairs are dropped, those closest to the peak first.
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.bytes < b.bytes; });
  while (!pairs.empty()) {
    Lives merged = find_lives(options);
    placed = with_workspaces(merged.buffers);
    if (ulp::lay_out(placed) <= most) {
      lives = std::move(merged);
      break;
    }
    for (const size_t left = pairs.size() / 2; pairs.size() > left; pairs.pop_back()) {
      steps_[pairs.back().first].merged_task.reset();
      steps_[pairs.back().first + 1].merged = false;
    }
  }
  return least;
}

}  // namespace ulp
