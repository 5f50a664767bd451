#include "ulp/graph/repeat.h"

#include <algorithm>

#include "ulp/graph/op.h"

namespace ulp {
namespace {

class Repeater {
 public:
  explicit Repeater(Graph& graph) : graph_(graph), twins_(graph.tensor_count()) {}

  std::vector<TensorId> run() {
    const size_t nodes = graph_.node_count();
    // Only sums over micro-batches outlive backward: then all that a weight's gradient is made from
    // is still there.
    const bool from_sums = sums_live_on();
    for (size_t i = 0; i < nodes; ++i) {
      const Node node = graph_.nodes()[i];
      const bool finishes = node.phase == Phase::finish && graph_[node.out[0]].kind == Kind::weight_grad;
      if (finishes || (node.phase == Phase::backward && !from_sums)) repeat(node);
    }
    return std::move(twins_);
  }

 private:
  bool sums_live_on() const {
    return std::all_of(graph_.tensors().begin(), graph_.tensors().end(), [&](const TensorInfo& tensor) {
      return tensor.kind != Kind::weight || !tensor.grad || in_sum(tensor.grad);
    });
  }
  bool in_sum(TensorId grad) const {
    const Node& last = graph_[graph_[grad].producer];
    return last.phase == Phase::finish && graph_[last.in[0]].kind == Kind::grad_sum;
  }

  TensorId& twin(TensorId id) { return twins_[static_cast<size_t>(id.index)]; }
  TensorId current(TensorId id) { return id && twin(id) ? twin(id) : id; }

  void make_twin(TensorId id) {
    if (twin(id)) return;  // a sum, which an earlier node began
    TensorInfo info = graph_[id];
    info.name += ".again";
    info.format_from = id;
    info.twin = id;
    info.alias = current(info.alias);
    info.rows = {};
    info.producer = {};
    info.grad = {};
    twin(id) = graph_.add_tensor(std::move(info));
  }

  void repeat(const Node& node) {
    Node made = node;
    made.name += ".again";
    made.phase = node.phase == Phase::finish ? Phase::recompute_finish : Phase::recompute;
    for (TensorId& in : made.in) in = current(in);
    for (TensorId& out : made.out) {
      make_twin(out);
      out = twin(out);
    }
    graph_.add_node(std::move(made));
  }

  Graph& graph_;
  std::vector<TensorId> twins_;  // by tensor
};

}  // namespace

std::vector<TensorId> repeat_gradients(Graph& graph) { return Repeater(graph).run(); }

}  // namespace ulp
