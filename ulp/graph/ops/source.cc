#include "ulp/graph/ops/source.h"

namespace ulp {
namespace {

TensorId source(Builder& b, const OpDef& op, const std::string& name, const Shape& shape, Kind kind,
                Element element) {
  TensorInfo info;
  info.name = name + ".out";
  info.shape = shape;
  info.kind = kind;
  info.element = element;
  const TensorId out = b.graph().add_tensor(std::move(info));
  b.graph().add_node({&op, name, {}, {}, {out}, Phase::forward, false});
  return out;
}

}  // namespace

// The first of all operators, so a group of its own.
const OpDef kInput{"input", Form::general, nullptr, nullptr, true};
const OpDef kIndices{"indices"};
const OpDef kTarget{"target"};
const OpDef kBytes{"bytes"};

TensorId input(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kInput, name, shape, Kind::activation, Element::real);
}

TensorId indices(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kIndices, name, shape, Kind::fed, Element::int32);
}

TensorId target(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kTarget, name, shape, Kind::fed, Element::real);
}

TensorId bytes(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kBytes, name, shape, Kind::fed, Element::byte);
}

bool is_source(const Node& node) {
  return node.op == &kInput || node.op == &kIndices || node.op == &kTarget || node.op == &kBytes;
}

}  // namespace ulp
