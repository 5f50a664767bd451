#include "ulp/graph/ops/update.h"

#include <string>

#include "ulp/graph/repeat.h"

namespace ulp {

const OpDef kGradSquares{"grad_squares"};
const OpDef kGradNorm{"grad_norm"};
const OpDef kUpdate{"update"};

namespace {

// When all gradients are complete, before anything is updated.
TensorId add_norm(Graph& graph, const std::vector<TensorId>& weights, double max_norm) {
  std::vector<TensorId> squares;
  for (const TensorId weight : weights) {
    const TensorId grad = graph[weight].grad;
    TensorInfo info;
    info.name = graph[grad].name + ".squares";
    info.shape = {static_cast<int64_t>(sizeof(double))};
    info.kind = Kind::saved;
    info.element = Element::byte;
    squares.push_back(graph.add_tensor(std::move(info)));
    const std::string name = graph[squares.back()].name;
    graph.add_node({&kGradSquares, name, {}, {grad}, {squares.back()}, Phase::finish, false});
  }
  TensorInfo info;
  info.name = "grad_norm";
  info.shape = {2};
  info.kind = Kind::saved;
  const TensorId norm = graph.add_tensor(std::move(info));
  graph.add_node({&kGradNorm, "grad_norm", {{"max_norm", max_norm}}, squares, {norm}, Phase::finish, false});
  return norm;
}

}  // namespace

void add_updates(Graph& graph, const UpdateSpec& spec, double max_norm) {
  add_updates(graph, [&](TensorId) { return spec; }, {.max_norm = max_norm});
}

void add_updates(Graph& graph, const std::function<UpdateSpec(TensorId weight)>& choose,
                 const UpdateOrder& order) {
  std::vector<TensorId> weights;
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (graph[id].kind == Kind::weight && graph[id].grad) weights.push_back(id);
  }
  const TensorId norm = order.max_norm > 0 ? add_norm(graph, weights, order.max_norm) : TensorId{};
  const std::vector<TensorId> twins = order.twice ? repeat_gradients(graph) : std::vector<TensorId>{};
  for (const TensorId weight : weights) {
    UpdateSpec spec = choose(weight);
    const auto current = [&](TensorId id) { return order.twice ? twins[static_cast<size_t>(id.index)] : id; };
    const TensorId grad = current(graph[weight].grad);
    const TensorId rows = graph[graph[weight].grad].rows;
    Node node{
        &kUpdate, graph[weight].name + ".update", std::move(spec.attrs), {grad}, {weight}, Phase::update,
        false};
    if (norm) node.in.push_back(norm);
    if (rows) node.in.push_back(current(rows));
    for (const std::string_view state : spec.states) {
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
