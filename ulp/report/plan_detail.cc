// Where a plan puts everything, as rectangles of addresses by steps.
#include <algorithm>
#include <array>
#include <map>

#include "ulp/report/run_plan.h"
#include "ulp/tensor/memory.h"

namespace ulp {
namespace {

constexpr std::array<std::string_view, 6> kPhases = {"forward",   "backward",     "finish",
                                                     "recompute", "finish_again", "update"};

std::string_view use_of_state(Kind kind) {
  return kind == Kind::optimizer ? "optimizer" : is_state(kind) ? "weights" : "gradients";
}

class BlockMaker {
 public:
  explicit BlockMaker(const Plan& plan) : plan_(plan), graph_(plan.graph()) {}

  std::vector<PlannedBlock> make(uint64_t snapshot_bytes) {
    add_state(snapshot_bytes);
    add_tensors();
    add_workspaces();
    add_prepared();
    return std::move(blocks_);
  }

 private:
  // Downwards from address 0, weights first.
  void add_state(uint64_t snapshot_bytes) {
    const int last = static_cast<int>(plan_.steps().size()) - 1;
    int64_t offset = 0;
    for (const std::string_view use : {"weights", "optimizer", "gradients"}) {
      for (size_t i = 0; i < graph_.tensor_count(); ++i) {
        const TensorId id{static_cast<int32_t>(i)};
        const TensorPlace& place = plan_.place(id);
        if (place.home != Home::state || place.base != id || use_of_state(graph_[id].kind) != use) continue;
        offset -= static_cast<int64_t>(place.bytes);
        blocks_.push_back({graph_[id].name, use, format_of(i), offset, place.bytes, 0, last});
      }
    }
    if (snapshot_bytes == 0) return;
    offset -= static_cast<int64_t>(snapshot_bytes);
    blocks_.push_back({"snapshot of weights and state", "snapshot", "", offset, snapshot_bytes, 0, last});
  }

  void add_tensors() {
    // Where a result takes over the bytes of an operand, both are alive in one step: it is the result's.
    std::map<std::pair<size_t, int>, size_t> begins;  // by address and first step
    const size_t before = blocks_.size();
    for (size_t i = 0; i < graph_.tensor_count(); ++i) {
      const TensorId id{static_cast<int32_t>(i)};
      const TensorPlace& place = plan_.place(id);
      if (place.home != Home::step || place.base != id || place.bytes == 0) continue;
      const NodeId producer = graph_[id].producer;
      const bool forward = producer && graph_[producer].phase == Phase::forward;
      begins.emplace(std::pair(place.offset, place.first), blocks_.size());
      blocks_.push_back({graph_[id].name, forward ? "activations" : "gradients", format_of(i),
                         static_cast<int64_t>(place.offset), place.bytes, place.first, place.last});
    }
    for (size_t i = before; i < blocks_.size(); ++i) {
      PlannedBlock& block = blocks_[i];
      // The first that begins at this address while the block is alive.
      const auto next = begins.upper_bound({static_cast<size_t>(block.offset), block.first});
      if (next != begins.end() && next->first.first == static_cast<size_t>(block.offset) &&
          next->first.second <= block.last)
        block.last = next->first.second - 1;
    }
  }

  void add_workspaces() {
    for (size_t i = 0; i < plan_.steps().size(); ++i) {
      const PlanStep& step = plan_.steps()[i];
      const size_t prepared = step.prepared ? step.task->prepared() : 0;
      const size_t bytes = aligned_bytes(step.workspace_bytes() - prepared);
      if (bytes > 0) add_work(i, i, step.workspace, bytes, "workspace of ");
    }
  }

  void add_prepared() {
    for (size_t i = 0; i < plan_.steps().size(); ++i) {
      for (const int member : plan_.steps()[i].prepares) {
        const auto of = static_cast<size_t>(member);
        const PlanStep& step = plan_.steps()[of];
        add_work(i, of, *step.prepared, aligned_bytes(step.task->prepared()), "prepared for ");
      }
    }
  }

  // `first`: the step that begins it.
  void add_work(size_t first, size_t of, size_t offset, size_t bytes, std::string_view what) {
    const PlanStep& step = plan_.steps()[of];
    const int last = std::max(static_cast<int>(of), step.live_until - 1);
    blocks_.push_back({std::string(what) + graph_[step.roots[0]].name, "workspace", "",
                       static_cast<int64_t>(offset), bytes, static_cast<int>(first), last});
  }

  std::string format_of(size_t tensor) const {
    const TensorInfo& info = graph_.tensors()[tensor];
    return info.element == Element::real ? storage_name(plan_.formats()[tensor].storage)
                                         : std::string(element_name(info.element));
  }

  const Plan& plan_;
  const Graph& graph_;
  std::vector<PlannedBlock> blocks_;
};

std::vector<PlannedNode> forward_map(const Graph& graph) {
  std::vector<PlannedNode> nodes;
  std::map<int32_t, size_t> number_of;  // of forward nodes
  for (size_t i = 0; i < graph.node_count(); ++i) {
    const NodeId id{static_cast<int32_t>(i)};
    const Node& node = graph[id];
    if (node.phase != Phase::forward) continue;
    PlannedNode made{node.name, node.op->name, {}, {}, {}};
    for (const TensorId out : node.out) made.out.push_back(graph[out].name);
    for (const TensorId in : node.in) {
      const TensorInfo& tensor = graph[in];
      if (tensor.kind == Kind::weight) made.weights.push_back(tensor.name);
      const auto from = number_of.find(tensor.producer.index);
      if (is_state(tensor.kind) || from == number_of.end()) continue;
      if (std::find(made.in.begin(), made.in.end(), from->second) == made.in.end())
        made.in.push_back(from->second);
    }
    number_of.emplace(id.index, nodes.size());
    nodes.push_back(std::move(made));
  }
  return nodes;
}

}  // namespace

PlanDetail detail_of(const Plan& plan, uint64_t snapshot_bytes) {
  PlanDetail detail;
  for (const PlanStep& step : plan.steps()) {
    const Node& root = plan.graph()[step.roots[0]];
    detail.steps.push_back({root.name, root.op->name, step.kernel->name,
                            kPhases[static_cast<size_t>(step.phase)],
                            step.roots.size() - 1 + step.inlined.size()});
  }
  detail.blocks = BlockMaker(plan).make(snapshot_bytes);
  detail.nodes = forward_map(plan.graph());
  return detail;
}

}  // namespace ulp
