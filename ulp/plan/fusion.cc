#include "ulp/plan/fusion.h"

#include <algorithm>
#include <set>

#include "ulp/graph/ops/arithmetic.h"

namespace ulp {
namespace {

// Longer chains are split: each link needs room in the first cache or in registers.
constexpr size_t kMaxInlined = 8, kMaxLeaves = 6;

size_t at(TensorId id) { return static_cast<size_t>(id.index); }

bool fuses(Phase phase) {
  return phase == Phase::forward || phase == Phase::backward || phase == Phase::recompute;
}

class Finder {
 public:
  Finder(const PlanContext& plan, const std::vector<bool>& stored)
      : plan_(plan), graph_(plan.graph), stored_(stored) {
    const size_t tensors = graph_.tensor_count();
    fusion_.base.resize(tensors);
    for (size_t i = 0; i < tensors; ++i) fusion_.base[i] = TensorId{static_cast<int32_t>(i)};
    fusion_.inlined.resize(tensors);
    fusion_.absorbed.resize(graph_.node_count());
    readers_.resize(tensors);
    leaves_.resize(tensors);
    inside_.resize(tensors);
    keep_.resize(tensors);
    writers_.resize(tensors);
  }

  Fusion run(bool fuse) {
    find_roots(fuse);
    for (size_t i = 0; i < stored_.size(); ++i) {
      if (stored_[i]) keep_[at(fusion_.base[i])] = true;
    }
    if (!fuse) return std::move(fusion_);
    for (size_t i = 0; i < graph_.node_count(); ++i) {
      if (fusion_.absorbed[i]) continue;
      for (const TensorId in : graph_.nodes()[i].in) readers_[at(fusion_.base[at(in)])].push_back(i);
    }
    for (size_t i = 0; i < graph_.node_count(); ++i) {
      if (fusion_.absorbed[i]) continue;  // a view writes nothing
      for (const TensorId out : graph_.nodes()[i].out) writers_[at(fusion_.base[at(out)])].push_back(i);
    }
    for (size_t i = 0; i < graph_.node_count(); ++i) {
      if (!fusion_.absorbed[i] && graph_.nodes()[i].op->form == Form::elementwise) consider(i);
    }
    return std::move(fusion_);
  }

 private:
  const Storage& storage(TensorId id) const { return plan_.formats[at(id)].storage; }

  // In a plain format, rounding an already rounded value changes nothing.
  bool changes_nothing(const Node& node) const {
    if (node.op != &kCopy) return false;
    const TensorInfo &in = graph_[node.in[0]], &out = graph_[node.out[0]];
    return !is_state(in.kind) && !is_state(out.kind) && out.kind != Kind::grad_sum &&
           std::holds_alternative<Plain>(storage(node.in[0])) && storage(node.in[0]) == storage(node.out[0]);
  }

  void find_roots(bool fuse) {
    for (size_t i = 0; i < graph_.node_count(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.op->form != Form::view && !(fuse && changes_nothing(node))) continue;
      fusion_.absorbed[i] = true;
      fusion_.base[at(node.out[0])] = fusion_.base[at(node.in[0])];
    }
  }

  bool full(const Node& node, TensorId in) const { return graph_[in].shape == domain(node); }
  const Shape& domain(const Node& node) const {
    return node.op->form == Form::reduction ? graph_[node.in[0]].shape : graph_[node.out[0]].shape;
  }

  size_t bytes(TensorId id) const { return tensor_bytes(graph_[id], storage(id)); }

  void consider(size_t index) {
    const Node& node = graph_.nodes()[index];
    const TensorId out = node.out[0];
    std::set<int32_t>& leaves = leaves_[at(out)];
    size_t inside = 1;
    for (const TensorId in : node.in) {
      if (!full(node, in)) continue;
      const TensorId root = fusion_.base[at(in)];
      if (fusion_.inlined[at(root)]) {
        leaves.insert(leaves_[at(root)].begin(), leaves_[at(root)].end());
        inside += inside_[at(root)];
      } else {
        leaves.insert(root.index);
      }
    }
    inside_[at(out)] = inside;
    if (!can_be_inlined(node, out) || changes_later(index) || inside > kMaxInlined ||
        leaves.size() > kMaxLeaves)
      return;
    const size_t readers = readers_[at(out)].size();
    size_t read = 0;
    for (const int32_t leaf : leaves) read += bytes(TensorId{leaf});
    // Compares recomputing it in each reader with reading once, writing once and reading in each
    // reader.
    if (readers > 1 && (inside > 2 || readers * read >= read + (1 + readers) * bytes(out))) return;
    fusion_.inlined[at(out)] = true;
    fusion_.absorbed[index] = true;
  }

  // Whether what the node reads is written again in its phase: computed inside a later node it
  // would find that.
  bool changes_later(size_t index) const {
    const Node& node = graph_.nodes()[index];
    return std::any_of(node.in.begin(), node.in.end(), [&](TensorId in) {
      const std::vector<size_t>& writers = writers_[at(fusion_.base[at(in)])];
      return std::any_of(writers.begin(), writers.end(), [&](size_t writer) {
        return writer > index && graph_.nodes()[writer].phase == node.phase;
      });
    });
  }

  bool can_be_inlined(const Node& node, TensorId out) const {
    const TensorInfo& info = graph_[out];
    if (keep_[at(out)] || is_state(info.kind) || info.kind == Kind::grad_sum || !fuses(node.phase))
      return false;
    if (!std::holds_alternative<Plain>(storage(out)) || readers_[at(out)].empty()) return false;
    if (fusion_.base[at(out)] != out) return false;
    return std::all_of(readers_[at(out)].begin(), readers_[at(out)].end(), [&](size_t reader) {
      const Node& other = graph_.nodes()[reader];
      if (other.phase != node.phase ||
          (other.op->form != Form::elementwise && other.op->form != Form::reduction))
        return false;
      // Every input that has its bytes reads it as a whole.
      return std::all_of(other.in.begin(), other.in.end(), [&](TensorId in) {
        return fusion_.base[at(in)] != out || (full(other, in) && graph_[in].shape == info.shape);
      });
    });
  }

  const PlanContext& plan_;
  const Graph& graph_;
  const std::vector<bool>& stored_;
  Fusion fusion_;
  std::vector<std::vector<size_t>> readers_;  // nodes, by root
  std::vector<std::vector<size_t>> writers_;  // nodes, by root
  // Stored tensors that an elementwise result is computed from.
  std::vector<std::set<int32_t>> leaves_;
  std::vector<bool> keep_;      // by root: it or a view of it was asked to be stored
  std::vector<size_t> inside_;  // nodes that computing it takes
};

}  // namespace

Fusion find_fusion(const PlanContext& plan, bool fuse, const std::vector<bool>& stored) {
  return Finder(plan, stored).run(fuse);
}

std::vector<NodeId> inlined_nodes(const Graph& graph, const Fusion& fusion, NodeId node) {
  std::set<int32_t> found;
  std::vector<NodeId> open{node};
  while (!open.empty()) {
    const Node& reader = graph[open.back()];
    open.pop_back();
    for (const TensorId in : reader.in) {
      const TensorId root = fusion.base[at(in)];
      if (!fusion.inlined[at(root)]) continue;
      if (found.insert(graph[root].producer.index).second) open.push_back(graph[root].producer);
    }
  }
  std::vector<NodeId> nodes;
  for (const int32_t index : found) nodes.push_back(NodeId{index});
  return nodes;
}

}  // namespace ulp
