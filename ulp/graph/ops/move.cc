#include "ulp/graph/ops/move.h"

#include <array>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/arithmetic.h"

namespace ulp {
namespace {

constexpr std::array<std::string_view, Shape::kMaxRank> kExtent = {"extent0", "extent1", "extent2",
                                                                   "extent3"};
constexpr std::array<std::string_view, Shape::kMaxRank> kAxis = {"axis0", "axis1", "axis2", "axis3"};

std::vector<Output> reshape_shape(const Attrs& attrs, std::span<const Shape> in) {
  std::vector<int64_t> extents;
  for (int64_t axis = 0; axis < attrs.integer("rank"); ++axis) {
    extents.push_back(attrs.integer(kExtent[static_cast<size_t>(axis)]));
  }
  const Shape shape{std::span<const int64_t>(extents)};
  if (shape.elements() != in[0].elements()) {
    fail("shape", "{} and {} have different numbers of elements", shape_text(in[0]), shape_text(shape));
  }
  return {{"out", shape}};
}

void reshape_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kReshape, node, {gradients.of(node.out[0])}, {gradients.part(node.in[0])});
}

std::vector<Output> shuffle_shape(const Attrs& attrs, std::span<const Shape> in) {
  if (const int64_t groups = attrs.integer("groups"); in[0].back() % groups != 0) {
    fail("shape", "{} channels cannot be shuffled in {} groups", in[0].back(), groups);
  }
  return {{"out", in[0]}};
}

// Back goes the same way with the two factors of the channels exchanged.
void shuffle_backward(Gradients& gradients, const Node& node) {
  const int64_t channels = gradients.graph()[node.in[0]].shape.back();
  gradients.emit(kChannelShuffle, node, {gradients.of(node.out[0])}, {gradients.part(node.in[0])},
                 {{"groups", static_cast<double>(channels / node.attrs.integer("groups"))}});
}

std::vector<Output> transpose_shape(const Attrs& attrs, std::span<const Shape> in) {
  std::vector<int64_t> extents;
  unsigned seen = 0;
  for (int axis = 0; axis < in[0].rank(); ++axis) {
    const int64_t from = attrs.integer(kAxis[static_cast<size_t>(axis)]);
    if (from < 0 || from >= in[0].rank() || (seen >> from & 1) != 0) {
      fail("shape", "the axes must be those of {}, each once", shape_text(in[0]));
    }
    seen |= 1u << from;
    extents.push_back(in[0][static_cast<int>(from)]);
  }
  return {{"out", Shape(std::span<const int64_t>(extents))}};
}

void transpose_backward(Gradients& gradients, const Node& node) {
  Attrs inverse;
  for (int axis = 0; axis < gradients.graph()[node.in[0]].shape.rank(); ++axis) {
    const auto from = static_cast<size_t>(node.attrs.integer(kAxis[static_cast<size_t>(axis)]));
    inverse.set(kAxis[from], axis);
  }
  gradients.emit(kTranspose, node, {gradients.of(node.out[0])}, {gradients.part(node.in[0])}, inverse);
}

// Of concat and split.
int join_axis(const Attrs& attrs, const Shape& shape) {
  return attrs.has("axis") ? static_cast<int>(attrs.integer("axis")) : shape.rank() - 1;
}

// What backward tells the opposite operator.
Attrs same_axis(const Node& node) {
  return node.attrs.has("axis") ? Attrs{{"axis", node.attrs.real("axis")}} : Attrs{};
}

Shape with_extent(const Shape& shape, int axis, int64_t extent) {
  std::vector<int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(i == axis ? extent : shape[i]);
  return Shape(std::span<const int64_t>(extents));
}

std::vector<Output> concat_shape(const Attrs& attrs, std::span<const Shape> in) {
  const int axis = join_axis(attrs, in[0]);
  int64_t extent = 0;
  for (const Shape& shape : in) {
    if (shape.rank() != in[0].rank() || shape != with_extent(in[0], axis, shape[axis])) {
      fail("shape", "{} and {} differ in more than {}", shape_text(in[0]), shape_text(shape),
           axis + 1 == in[0].rank() ? "the last axis" : "axis " + std::to_string(axis));
    }
    extent += shape[axis];
  }
  return {{"out", with_extent(in[0], axis, extent)}};
}

// Inputs that want no gradient still take up their part.
void concat_backward(Gradients& gradients, const Node& node) {
  std::vector<TensorId> parts(node.in.size());
  for (size_t i = node.in.size(); i-- > 0;) {
    parts[i] = gradients.wanted(node.in[i]) ? gradients.part(node.in[i])
                                            : gradients.temporary(node, "unused" + std::to_string(i),
                                                                  gradients.graph()[node.in[i]].shape);
  }
  gradients.emit(kSplit, node, {gradients.of(node.out[0])}, std::move(parts), same_axis(node));
}

std::vector<Output> split_shape(const Attrs& attrs, std::span<const Shape> in) {
  const int axis = join_axis(attrs, in[0]);
  const int64_t parts = attrs.integer("parts"), extent = in[0][axis];
  if (parts < 1 || extent % parts != 0)
    fail("shape", "{} {} cannot be split in {} parts: it must be a divisor of them", extent,
         axis + 1 == in[0].rank() ? "channels" : "places of axis " + std::to_string(axis), parts);
  std::vector<Output> outputs;
  for (int64_t i = 0; i < parts; ++i)
    outputs.push_back({"out" + std::to_string(i), with_extent(in[0], axis, extent / parts)});
  return outputs;
}

void split_backward(Gradients& gradients, const Node& node) {
  std::vector<TensorId> grads;
  for (const TensorId out : node.out) {
    TensorId grad = gradients.of(out);
    if (!grad) {
      grad = gradients.temporary(node, "zero" + std::to_string(grads.size()), gradients.graph()[out].shape);
      gradients.emit(kSeed, node, {}, {grad}, {{"value", 0}});
    }
    grads.push_back(grad);
  }
  gradients.emit(kConcat, node, std::move(grads), {gradients.part(node.in[0])}, same_axis(node));
}

// The attributes of concat and split. The last axis has none: graphs are told apart by what they say.
Attrs along(const std::string& name, const Shape& shape, int axis) {
  const int rank = shape.rank(), from_front = axis < 0 ? axis + rank : axis;
  if (from_front < 0 || from_front >= rank) {
    fail("graph", "{}: {} has axes 0 to {}, or -1 to {} from the back, got {}", name, shape_text(shape),
         rank - 1, -rank, axis);
  }
  return from_front == rank - 1 ? Attrs{} : Attrs{{"axis", static_cast<double>(from_front)}};
}

}  // namespace

JoinedRows joined_rows(const Node& node, const Shape& shape) {
  int64_t width = 1;
  for (int axis = join_axis(node.attrs, shape); axis < shape.rank(); ++axis) width *= shape[axis];
  return {shape.elements() / static_cast<size_t>(width), width};
}

const OpDef kReshape{"reshape", Form::view, reshape_shape, reshape_backward, false, true};
const OpDef kChannelShuffle{"channel_shuffle", Form::general, shuffle_shape, shuffle_backward, false, true};
const OpDef kTranspose{"transpose", Form::general, transpose_shape, transpose_backward, false, true};
const OpDef kConcat{.name = "concat", .infer = concat_shape, .backward = concat_backward, .copies = true};
const OpDef kSplit{.name = "split", .infer = split_shape, .backward = split_backward, .copies = true};

TensorId reshape(Builder& b, const std::string& name, TensorId x, const Shape& shape) {
  Attrs attrs{{"rank", static_cast<double>(shape.rank())}};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    attrs.set(kExtent[static_cast<size_t>(axis)], static_cast<double>(shape[axis]));
  }
  return nodes(b).add_one(kReshape, name, {x}, std::move(attrs));
}

TensorId flatten(Builder& b, const std::string& name, TensorId x) {
  const Shape& shape = b.shape(x);
  return reshape(b, name, x, {shape[0], static_cast<int64_t>(shape.elements()) / shape[0]});
}

TensorId channel_shuffle(Builder& b, const std::string& name, TensorId x, int64_t groups) {
  if (groups <= 0) fail("graph", "{}: groups must be positive, got {}", name, groups);
  return nodes(b).add_one(kChannelShuffle, name, {x}, {{"groups", static_cast<double>(groups)}});
}

TensorId transpose(Builder& b, const std::string& name, TensorId x, const std::vector<int>& axes) {
  if (static_cast<int>(axes.size()) != b.shape(x).rank()) {
    fail("graph", "{}: {} axes for a tensor of {}", name, axes.size(), shape_text(b.shape(x)));
  }
  Attrs attrs;
  for (size_t axis = 0; axis < axes.size(); ++axis) attrs.set(kAxis[axis], axes[axis]);
  return nodes(b).add_one(kTranspose, name, {x}, std::move(attrs));
}

TensorId concat(Builder& b, const std::string& name, const std::vector<TensorId>& in, int axis) {
  if (in.size() < 2) fail("graph", "{}: two or more tensors can be joined, got {}", name, in.size());
  return nodes(b).add_one(kConcat, name, in, along(name, b.shape(in[0]), axis));
}

std::vector<TensorId> split(Builder& b, const std::string& name, TensorId x, int64_t parts, int axis) {
  Attrs attrs = along(name, b.shape(x), axis);
  attrs.set("parts", static_cast<double>(parts));
  return nodes(b).add(kSplit, name, {x}, attrs);
}

}  // namespace ulp
