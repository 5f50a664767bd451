#include "ulp/graph/ops/update.h"

#include <string>
#include <vector>

namespace ulp {

const OpDef kGradNorm{"grad_norm"};
const OpDef kUpdate{"update"};

void add_updates(Graph& graph, const Attrs& optimizer, std::span<const std::string_view> states,
                 double max_norm) {
  std::vector<TensorId> weights, grads;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (graph[id].kind != Kind::weight || !graph[id].grad) continue;
    weights.push_back(id);
    grads.push_back(graph[id].grad);
  }
  TensorId norm;
  if (max_norm > 0) {
    TensorInfo info;
    info.name = "grad_norm";
    info.shape = {2};
    info.kind = Kind::kept;
    norm = graph.add_tensor(std::move(info));
    graph.add_node({&kGradNorm, "grad_norm", {{"max_norm", max_norm}}, grads, {norm}, Phase::update, false});
  }
  for (const TensorId weight : weights) {
    Node node{
        &kUpdate, graph[weight].name + ".update", optimizer, {graph[weight].grad}, {weight}, Phase::update,
        false};
    if (norm) node.in.push_back(norm);
    for (const std::string_view state : states) {
      TensorInfo info;
      info.name = graph[weight].name + "." + std::string(state);
      info.shape = graph[weight].shape;
      info.kind = Kind::optimizer;
      node.out.push_back(graph.add_tensor(std::move(info)));
    }
    graph.add_node(std::move(node));
  }
}

}  // namespace ulp
