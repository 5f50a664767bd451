#include "ulp/graph/ops/source.h"

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

constexpr std::array<std::string_view, Shape::kMaxRank> kExtent = {"extent0", "extent1", "extent2",
                                                                   "extent3"};

template <Kind kind, Element element>
std::vector<Output> source_shape(const Attrs& attrs, std::span<const Shape>) {
  std::vector<int64_t> extents;
  for (const auto& [name, extent] : attrs.values()) extents.push_back(static_cast<int64_t>(extent));
  return {{"out", Shape(extents), kind, element}};
}

TensorId source(Builder& b, const OpDef& op, const std::string& name, const Shape& shape) {
  Attrs attrs;
  for (int axis = 0; axis < shape.rank(); ++axis)
    attrs.set(kExtent[static_cast<size_t>(axis)], static_cast<double>(shape[axis]));
  return nodes(b).add_one(op, name, {}, attrs);
}

std::vector<Output> from_bytes_shape(const Attrs&, std::span<const Shape> in) { return {{"out", in[0]}}; }

constexpr OperandKind kOfBytes[] = {OperandKind::byte};

}  // namespace

// The first of all operators, so a group of its own.
const OpDef kInput{.name = "input", .infer = source_shape<Kind::activation, Element::real>, .anchors = true};
const OpDef kIndices{.name = "indices", .infer = source_shape<Kind::fed, Element::int32>};
const OpDef kTarget{.name = "target", .infer = source_shape<Kind::fed, Element::real>};
const OpDef kBytes{.name = "bytes", .infer = source_shape<Kind::fed, Element::byte>};
// As `input` is, the first of all operators.
const OpDef kFromBytes{
    .name = "from_bytes", .infer = from_bytes_shape, .anchors = true, .operands = kOfBytes};

TensorId input(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kInput, name, shape);
}

TensorId indices(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kIndices, name, shape);
}

TensorId target(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kTarget, name, shape);
}

TensorId bytes(Builder& b, const std::string& name, const Shape& shape) {
  return source(b, kBytes, name, shape);
}

TensorId from_bytes(Builder& b, const std::string& name, TensorId bytes, float shift, float scale) {
  if (!std::isfinite(shift) || !std::isfinite(scale))
    fail("graph", "{}: shift and scale must be finite, got {} and {}", name, shift, scale);
  return nodes(b).add_one(kFromBytes, name, {bytes}, {{"shift", double{shift}}, {"scale", double{scale}}});
}

bool is_source(const Node& node) {
  return node.op == &kInput || node.op == &kIndices || node.op == &kTarget || node.op == &kBytes;
}

}  // namespace ulp
