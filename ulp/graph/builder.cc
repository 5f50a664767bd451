#include "ulp/graph/builder.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

// Files list names with spaces between them, and safetensors has a name of its own.
void check_name(const std::string& name) {
  const bool fine =
      !name.empty() && name != "__metadata__" && std::all_of(name.begin(), name.end(), [](char c) {
        return static_cast<unsigned char>(c) > ' ' && c != 0x7F && c != ';' && c != '@';
      });
  if (!fine)
    fail("graph", "'{}' is no name: use letters, digits and signs other than ; and @, without spaces",
         shown_text(name));
}

// Shape rules see no elements: numbers of the wrong kind would be read as if they were right.
void check_operand(const Graph& graph, const OpDef& op, const std::string& name, size_t i, TensorId id) {
  const TensorInfo& tensor = graph[id];
  const OperandKind expected = i < op.operands.size() ? op.operands[i] : OperandKind::computed;
  const bool real = tensor.element == Element::real;
  std::string_view wanted;
  switch (expected) {
    case OperandKind::computed:
      if (!real || tensor.kind == Kind::fed)
        wanted = "real numbers that have a format, from `input` or an operator";
      break;
    case OperandKind::index:
      if (tensor.element != Element::int32) wanted = "int32, from `indices` or `take`";
      break;
    case OperandKind::target:
      if (!real) wanted = "real numbers, from `target`, `take_target` or `input`";
      break;
    case OperandKind::byte:
      if (tensor.element != Element::byte || tensor.kind != Kind::fed) wanted = "bytes, from `bytes`";
      break;
  }
  if (!wanted.empty())
    fail("graph", "{} ({}): operand {} must be {}, and '{}' is not", name, op.name, i + 1, wanted,
         tensor.name);
}

}  // namespace

Shape Builder::shape(TensorId id) const {
  if (!graph_.has(id)) fail("graph", "a tensor that this builder has not made has no shape");
  return graph_[id].shape;
}

void Builder::time_step(int64_t t) {
  if (t < 0) fail("graph", "time steps are numbered from 0, got {}", t);
  time_ = t;
}

std::string NodeBuilder::node_name(const std::string& name) const {
  const auto first = b_.first_.find(name);
  const bool later = b_.time_ >= 0 && first != b_.first_.end() && first->second != b_.time_;
  return later ? fmt::format("{}@{}", name, b_.time_) : name;
}

std::vector<TensorId> NodeBuilder::add(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                                       const Attrs& attrs) {
  Graph& graph = b_.graph_;
  check_name(name);
  const std::string own = node_name(name);
  std::vector<Shape> shapes;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!graph.has(in[i]))
      fail("graph", "{} ({}): operand {} is no tensor that this builder has made", name, op.name, i + 1);
    check_operand(graph, op, name, i, in[i]);
    shapes.push_back(graph[in[i]].shape);
  }
  std::vector<Output> outputs;
  try {
    outputs = op.infer(attrs, shapes);
  } catch (const Error& error) {
    fail("graph", "{} ({}): {}", name, op.name, error.message());
  }
  if (b_.time_ >= 0) b_.first_.emplace(name, b_.time_);
  Node node{&op, own, attrs, std::move(in), {}, Phase::forward, false};
  for (const Output& output : outputs) {
    TensorInfo info;
    info.name = own + "." + output.name;
    info.shape = output.shape;
    info.kind = output.kind;
    info.element = output.element;
    if (own != name) {
      info.step_of = graph.find(name + "." + output.name);
      info.format_from = info.step_of;
    }
    if (op.moves) info.format_from = node.in[0];
    if (op.form == Form::view) info.alias = node.in[0];
    node.out.push_back(graph.add_tensor(std::move(info)));
  }
  std::vector<TensorId> out = node.out;
  graph.add_node(std::move(node));
  return out;
}

TensorId NodeBuilder::add_one(const OpDef& op, const std::string& name, std::vector<TensorId> in,
                              const Attrs& attrs) {
  return add(op, name, std::move(in), attrs).front();
}

TensorId Builder::shared_state(const std::string& name, const Shape& shape) {
  check_name(name);
  if (shape.rank() == 0) fail("graph", "'{}' has no axes: a weight needs at least one", name);
  if (time_ < 0) return {};
  const auto [first, fresh] = first_.emplace(name, time_);
  const TensorId found = !fresh && first->second != time_ ? graph_.find(name) : TensorId{};
  if (found && graph_[found].shape != shape) {
    fail("graph", "'{}' is {} in one time step and {} in another", name, shape_text(graph_[found].shape),
         shape_text(shape));
  }
  return found;
}

TensorId Builder::weight(const std::string& name, const Shape& shape, Init init) {
  if (const TensorId shared = shared_state(name, shape)) return shared;
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.kind = Kind::weight;
  info.init = init;
  return graph_.add_tensor(std::move(info));
}

TensorId NodeBuilder::statistic(const std::string& name, const Shape& shape, float start) {
  if (const TensorId shared = b_.shared_state(name, shape)) return shared;
  TensorInfo info;
  info.name = name;
  info.shape = shape;
  info.kind = Kind::statistic;
  info.init = Init::constant(start);
  return b_.graph_.add_tensor(std::move(info));
}

}  // namespace ulp
