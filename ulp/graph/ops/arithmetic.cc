#include "ulp/graph/ops/arithmetic.h"

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"

namespace ulp {
namespace {

std::vector<Output> equal_shapes(const Attrs&, std::span<const Shape> in) {
  if (in[0] != in[1]) fail("shape", "{} and {} differ", shape_text(in[0]), shape_text(in[1]));
  return {{"out", in[0]}};
}

void add_backward(Gradients& gradients, const Node& node) {
  for (size_t i = node.in.size(); i-- > 0;) {
    if (!gradients.wanted(node.in[i])) continue;
    gradients.emit(kCopy, node, {gradients.of(node.out[0])}, {gradients.part(node.in[i])});
  }
}

void multiply_backward(Gradients& gradients, const Node& node) {
  for (size_t i = 2; i-- > 0;) {
    if (!gradients.wanted(node.in[i])) continue;
    gradients.emit(kMultiply, node, {gradients.of(node.out[0]), node.in[1 - i]},
                   {gradients.part(node.in[i])});
  }
}

}  // namespace

const OpDef kAdd{"add", Form::elementwise, equal_shapes, add_backward};
const OpDef kMultiply{"multiply", Form::elementwise, equal_shapes, multiply_backward};
const OpDef kSum{"sum", Form::elementwise};
const OpDef kCopy{"copy", Form::elementwise};
const OpDef kSeed{"seed", Form::elementwise};

TensorId add(Builder& b, const std::string& name, TensorId x, TensorId y) {
  return nodes(b).add_one(kAdd, name, {x, y});
}

TensorId multiply(Builder& b, const std::string& name, TensorId x, TensorId y) {
  return nodes(b).add_one(kMultiply, name, {x, y});
}

}  // namespace ulp
