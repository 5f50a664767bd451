#include "ulp/graph/builder.h"

#include "ulp/base/error.h"

namespace ulp {

std::vector<TensorId> Builder::add(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                                   Attrs attrs) {
  std::vector<Shape> shapes;
  for (const TensorId id : in) shapes.push_back(graph_[id].shape);
  std::vector<Output> outputs;
  try {
    outputs = op.infer(attrs, shapes);
  } catch (const Error& error) {
    fail("graph", "{} ({}): {}", name, op.name, error.what());
  }
  Node node{&op, name, std::move(attrs), std::move(in), {}, Phase::forward, false};
  for (const Output& output : outputs) {
    TensorInfo info;
    info.name = name + "." + std::string(output.name);
    info.shape = output.shape;
    info.kind = output.kind;
    info.element = output.element;
    if (op.moves) info.format_from = node.in[0];
    if (op.form == Form::view) info.alias = node.in[0];
    node.out.push_back(graph_.add_tensor(std::move(info)));
  }
  std::vector<TensorId> out = node.out;
  graph_.add_node(std::move(node));
  return out;
}

TensorId Builder::weight(const std::string& name, const Shape& shape, Init init) {
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.kind = Kind::weight;
  info.init = init;
  return graph_.add_tensor(std::move(info));
}

TensorId Builder::statistic(const std::string& name, const Shape& shape, float start) {
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.kind = Kind::statistic;
  info.init = Init::constant(start);
  return graph_.add_tensor(std::move(info));
}

}  // namespace ulp
