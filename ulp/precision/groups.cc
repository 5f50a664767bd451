#include "ulp/precision/groups.h"

#include <algorithm>

#include "ulp/graph/op.h"

namespace ulp {
namespace {

class Counter {
 public:
  explicit Counter(const Graph& graph)
      : graph_(graph),
        seen_(graph.tensor_count()),
        group_of_(graph.tensor_count(), -1),
        elements_(graph.tensor_count()) {
    for (size_t i = 0; i < graph.tensor_count(); ++i) {
      const TensorInfo& tensor = graph.tensors()[i];
      elements_[tensor.step_of ? static_cast<size_t>(tensor.step_of.index) : i] += tensor.elements();
    }
  }

  void visit(const Node& node) {
    const std::vector<TensorId> outputs = activations(node);
    if (outputs.empty()) return;
    if (node.op->anchors || group_ < 0) ++group_;
    for (const TensorId id : outputs) group_of_[static_cast<size_t>(id.index)] = group_;
    append(node, outputs, Kind::activation, Kind::activation_grad, group_);
    append(node, parameters(node), Kind::weight, Kind::weight_grad, parameter_group(node));
    ++layer_;
  }

  std::vector<CountedTensor> tensors = {};

 private:
  std::vector<TensorId> activations(const Node& node) const {
    std::vector<TensorId> made;
    for (const TensorId id : node.out) {
      const TensorInfo& tensor = graph_[id];
      if (tensor.kind == Kind::activation && tensor.element == Element::real && !tensor.format_from)
        made.push_back(id);
    }
    return made;
  }

  std::vector<TensorId> parameters(const Node& node) {
    std::vector<TensorId> read;
    for (const TensorId in : node.in) {
      const TensorId id = graph_.format_of(in);
      if (graph_[id].kind != Kind::weight || seen_[static_cast<size_t>(id.index)]) continue;
      seen_[static_cast<size_t>(id.index)] = true;
      read.push_back(id);
    }
    return read;
  }

  // Where no operator made the first input (an embedding's table), the operator's own.
  int parameter_group(const Node& node) const {
    if (node.in.empty()) return group_;
    const int made = group_of_[static_cast<size_t>(graph_.format_of(node.in[0]).index)];
    return made >= 0 ? made : group_;
  }

  void append(const Node& node, const std::vector<TensorId>& ids, Kind kind, Kind grad_kind, int group) {
    for (const bool grad : {false, true}) {
      int slot = 0;
      for (const TensorId id : ids) {
        const TensorInfo& tensor = graph_[id];
        tensors.push_back({grad ? tensor.name + ".grad" : tensor.name, node.op->name, layer_, slot++,
                           grad ? grad_kind : kind, elements_[static_cast<size_t>(id.index)], group,
                           grad ? tensor.grad : id});
      }
    }
  }

  const Graph& graph_;
  std::vector<bool> seen_;        // parameters, by tensor
  std::vector<int> group_of_;     // by tensor, -1 where it is none that an operator made
  std::vector<size_t> elements_;  // by tensor, over all time steps
  int group_ = -1, layer_ = 0;
};

}  // namespace

std::vector<CountedTensor> counted_tensors(const Graph& graph) {
  Counter counter(graph);
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::forward) counter.visit(node);
  }
  return std::move(counter.tensors);
}

std::vector<size_t> group_elements(std::span<const CountedTensor> tensors) {
  std::vector<size_t> elements;
  for (const CountedTensor& tensor : tensors) {
    const auto group = static_cast<size_t>(tensor.group);
    elements.resize(std::max(elements.size(), group + 1));
    elements[group] += tensor.elements;
  }
  return elements;
}

}  // namespace ulp
