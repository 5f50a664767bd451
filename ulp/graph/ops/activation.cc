#include "ulp/graph/ops/activation.h"

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"

namespace ulp {
namespace {

std::vector<Output> same_shape(const Attrs&, std::span<const Shape> in) { return {{"out", in[0]}}; }

template <const OpDef& Grad>
void from_output(Gradients& gradients, const Node& node) {
  gradients.emit(Grad, node, {gradients.of(node.out[0]), node.out[0]}, {gradients.part(node.in[0])},
                 node.attrs);
}

void dropout_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kDropoutGrad, node, {gradients.of(node.out[0])}, {gradients.part(node.in[0])}, node.attrs);
}

}  // namespace

const OpDef kReluGrad{"relu_grad", Form::elementwise};
const OpDef kRelu{"relu", Form::elementwise, same_shape, from_output<kReluGrad>};
const OpDef kLeakyReluGrad{"leaky_relu_grad", Form::elementwise};
const OpDef kLeakyRelu{"leaky_relu", Form::elementwise, same_shape, from_output<kLeakyReluGrad>};
const OpDef kTanhGrad{"tanh_grad", Form::elementwise};
const OpDef kTanh{"tanh", Form::elementwise, same_shape, from_output<kTanhGrad>};
const OpDef kSigmoidGrad{"sigmoid_grad", Form::elementwise};
const OpDef kSigmoid{"sigmoid", Form::elementwise, same_shape, from_output<kSigmoidGrad>};
const OpDef kDropoutGrad{"dropout_grad", Form::elementwise};
const OpDef kDropout{"dropout", Form::elementwise, same_shape, dropout_backward};

TensorId relu(Builder& b, const std::string& name, TensorId x) { return b.add_one(kRelu, name, {x}); }

TensorId leaky_relu(Builder& b, const std::string& name, TensorId x, double slope) {
  if (!(slope > 0 && slope < 1)) fail("graph", "{}: the slope must be between 0 and 1, got {}", name, slope);
  return b.add_one(kLeakyRelu, name, {x}, {{"slope", slope}});
}

TensorId tanh(Builder& b, const std::string& name, TensorId x) { return b.add_one(kTanh, name, {x}); }

TensorId sigmoid(Builder& b, const std::string& name, TensorId x) { return b.add_one(kSigmoid, name, {x}); }

TensorId dropout(Builder& b, const std::string& name, TensorId x, double p) {
  if (!(p >= 0 && p < 1)) fail("graph", "{}: p must be at least 0 and below 1, got {}", name, p);
  if (!b.training()) return x;
  return b.add_one(kDropout, name, {x},
                   {{"p", p}, {"tensor", static_cast<double>(tensor_number(name + ".out"))}});
}

}  // namespace ulp
