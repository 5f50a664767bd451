#include "ulp/graph/ops/arithmetic.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/conv.h"

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

// The extent of an axis, counted from the back; 1 beyond the first.
int64_t from_back(const Shape& shape, int axis) {
  return axis < shape.rank() ? shape[shape.rank() - 1 - axis] : 1;
}

std::vector<Output> broadcast_shape(const Attrs&, std::span<const Shape> in) {
  std::vector<int64_t> extents;
  for (int axis = std::max(in[0].rank(), in[1].rank()); axis-- > 0;) {
    const int64_t a = from_back(in[0], axis), b = from_back(in[1], axis);
    if (a != b && a != 1 && b != 1) {
      fail("shape", "{} and {} do not go together: {} and {} differ and neither is 1", shape_text(in[0]),
           shape_text(in[1]), a, b);
    }
    extents.push_back(std::max(a, b));
  }
  return {{"out", Shape(std::span<const int64_t>(extents))}};
}

void broadcast_add_backward(Gradients& gradients, const Node& node) {
  const TensorId dout = gradients.of(node.out[0]);
  const Shape out = gradients.graph()[node.out[0]].shape;
  for (size_t i = 2; i-- > 0;) {
    if (!gradients.wanted(node.in[i])) continue;
    const Shape in = gradients.graph()[node.in[i]].shape;
    const bool channels = in.rank() == 1 && in.back() == out.back();
    const OpDef& op = in == out ? kCopy : channels ? kChannelSum : kBroadcastSum;
    gradients.emit(op, node, {dout}, {gradients.part(node.in[i])});
  }
}

}  // namespace

const OpDef kBroadcastAdd{
    .name = "broadcast_add", .infer = broadcast_shape, .backward = broadcast_add_backward};
const OpDef kBroadcastSum{.name = "broadcast_sum"};

Repetition repetition(const Shape& smaller, const Shape& larger) {
  Repetition made{};
  int64_t stride = 1;
  for (int axis = 0; axis < Shape::kMaxRank; ++axis) {
    const auto at = static_cast<size_t>(Shape::kMaxRank - 1 - axis);
    made.extent[at] = from_back(larger, axis);
    made.stride[at] = from_back(smaller, axis) == 1 ? 0 : stride;
    stride *= from_back(smaller, axis);
  }
  return made;
}

const OpDef kAdd{"add", Form::elementwise, equal_shapes, add_backward};
const OpDef kMultiply{"multiply", Form::elementwise, equal_shapes, multiply_backward};
const OpDef kSum{"sum", Form::elementwise};
const OpDef kCopy{"copy", Form::elementwise};
const OpDef kSeed{"seed", Form::elementwise};

TensorId add(Builder& b, const std::string& name, TensorId x, TensorId y) {
  return nodes(b).add_one(b.shape(x) == b.shape(y) ? kAdd : kBroadcastAdd, name, {x, y});
}

TensorId multiply(Builder& b, const std::string& name, TensorId x, TensorId y) {
  return nodes(b).add_one(kMultiply, name, {x, y});
}

}  // namespace ulp
