#include "ulp/graph/ops/activation.h"

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"

namespace ulp {
namespace detail {

std::vector<Output> same_shape(const Attrs&, std::span<const Shape> in) { return {{"out", in[0]}}; }

void activation_backward(Gradients& gradients, const Node& node, const OpDef& grad, bool reads_output) {
  gradients.emit(grad, node, {gradients.of(node.out[0]), reads_output ? node.out[0] : node.in[0]},
                 {gradients.part(node.in[0])}, node.attrs);
}

TensorId add_activation(Builder& b, const OpDef& op, const std::string& name, TensorId x,
                        const char* attribute, double value, double least, double most) {
  if (attribute == nullptr) return nodes(b).add_one(op, name, {x});
  if (!(value > least && value < most))
    fail("graph", "{}: the {} must be between {} and {}, got {}", name, attribute, least, most, value);
  return nodes(b).add_one(op, name, {x}, {{attribute, value}});
}

}  // namespace detail

TensorId activation(Builder& b, std::string_view op, const std::string& name, TensorId x, double attribute) {
  TensorId made;
  std::string known;
  elementwise::Activations::for_each([&]<typename Op>(Op) {
    known += (known.empty() ? "" : ", ") + std::string(Op::kName);
    if (op == Op::kName) made = activation<Op>(b, name, x, attribute);
  });
  if (!made) fail("graph", "{}: there is no activation '{}'; there are {}", name, op, known);
  return made;
}

float activation_attribute(const Node& node) {
  float value = 0;
  elementwise::Activations::for_each([&]<typename Op>(Op) {
    if constexpr (Op::kAttribute != nullptr) {
      if (node.op == &kActivation<Op> || node.op == &kActivationGrad<Op>)
        value = static_cast<float>(node.attrs.real(Op::kAttribute));
    }
  });
  return value;
}

namespace {

void dropout_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kDropoutGrad, node, {gradients.of(node.out[0])}, {gradients.part(node.in[0])}, node.attrs);
}

}  // namespace

const OpDef kDropoutGrad{"dropout_grad", Form::elementwise};
const OpDef kDropout{"dropout", Form::elementwise, detail::same_shape, dropout_backward};

TensorId dropout(Builder& b, const std::string& name, TensorId x, double p) {
  if (!(p >= 0 && p < 1)) fail("graph", "{}: p must be at least 0 and below 1, got {}", name, p);
  if (!b.training()) return x;
  return nodes(b).add_one(
      kDropout, name, {x},
      {{"p", p}, {"tensor", static_cast<double>(tensor_number(nodes(b).node_name(name) + ".out"))}});
}

}  // namespace ulp
