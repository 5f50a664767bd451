#include "ulp/graph/ops/matmul.h"

#include <array>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/graph/gradients.h"
#include "ulp/graph/ops/conv.h"

namespace ulp {
namespace {

// The shape with its last axis replaced, or one more axis after it.
Shape with_last(const Shape& shape, int64_t last, bool append) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  if (!append) extents.pop_back();
  extents.push_back(last);
  return Shape(std::span<const int64_t>(extents));
}

std::vector<Output> linear_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0].rank() < 2 || in[1].rank() != 2 || in[0].back() != in[1][1]) {
    fail("shape", "{} and a weight of {} do not go together", shape_text(in[0]), shape_text(in[1]));
  }
  return {{"out", with_last(in[0], in[1][0], false)}};
}

void linear_backward(Gradients& gradients, const Node& node) {
  const TensorId dout = gradients.of(node.out[0]);
  if (node.in.size() > 2) gradients.emit(kChannelSum, node, {dout}, {gradients.part(node.in[2])});
  if (gradients.wanted(node.in[1])) {
    gradients.emit(kLinearGradWeight, node, {node.in[0], dout}, {gradients.part(node.in[1])});
  }
  if (gradients.wanted(node.in[0])) {
    gradients.emit(kLinearGradInput, node, {dout, node.in[1]}, {gradients.part(node.in[0])});
  }
}

std::vector<Output> matmul_shape(const Attrs& attrs, std::span<const Shape> in) {
  const Shape &a = in[0], &b = in[1];
  const int rank = a.rank();
  bool fits = rank >= 2 && b.rank() == rank;
  for (int axis = 0; fits && axis < rank - 2; ++axis) fits = a[axis] == b[axis];
  if (!fits) fail("shape", "{} and {} do not go together", shape_text(a), shape_text(b));
  const bool ta = attrs.integer("transpose_a") != 0, tb = attrs.integer("transpose_b") != 0;
  const int64_t m = a[rank - (ta ? 1 : 2)], k = a[rank - (ta ? 2 : 1)];
  const int64_t k2 = b[rank - (tb ? 1 : 2)], n = b[rank - (tb ? 2 : 1)];
  if (k != k2) fail("shape", "the inner extents {} and {} differ", k, k2);
  std::vector<int64_t> extents;
  for (int axis = 0; axis < rank - 2; ++axis) extents.push_back(a[axis]);
  extents.insert(extents.end(), {m, n});
  return {{"out", Shape(std::span<const int64_t>(extents))}};
}

Attrs transposes(bool a, bool b) { return {{"transpose_a", a ? 1.0 : 0.0}, {"transpose_b", b ? 1.0 : 0.0}}; }

void matmul_backward(Gradients& gradients, const Node& node) {
  const TensorId a = node.in[0], b = node.in[1], dout = gradients.of(node.out[0]);
  const bool ta = node.attrs.integer("transpose_a") != 0, tb = node.attrs.integer("transpose_b") != 0;
  if (gradients.wanted(b)) {
    if (tb) {
      gradients.emit(kMatmul, node, {dout, a}, {gradients.part(b)}, transposes(true, ta));
    } else {
      gradients.emit(kMatmul, node, {a, dout}, {gradients.part(b)}, transposes(!ta, false));
    }
  }
  if (gradients.wanted(a)) {
    if (ta) {
      gradients.emit(kMatmul, node, {b, dout}, {gradients.part(a)}, transposes(tb, true));
    } else {
      gradients.emit(kMatmul, node, {dout, b}, {gradients.part(a)}, transposes(false, !tb));
    }
  }
}

std::vector<Output> interaction_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0].rank() != 3 || in[0][1] < 2) {
    fail("shape", "vectors to be multiplied with each other are (examples, two or more, width), got {}",
         shape_text(in[0]));
  }
  return {{"out", {in[0][0], in[0][1] * (in[0][1] - 1) / 2}}};
}

void interaction_backward(Gradients& gradients, const Node& node) {
  gradients.emit(kDotInteractionGrad, node, {gradients.of(node.out[0]), node.in[0]},
                 {gradients.part(node.in[0])});
}

std::vector<Output> embedding_shape(const Attrs&, std::span<const Shape> in) {
  if (in[0].rank() != 2 || in[1].rank() == Shape::kMaxRank) {
    fail("shape", "a table of {} and indices of {} do not go together", shape_text(in[0]), shape_text(in[1]));
  }
  return {{"out", with_last(in[1], in[0][1], true)}};
}

void embedding_backward(Gradients& gradients, const Node& node) {
  const TensorId table = node.in[0], dout = gradients.of(node.out[0]);
  const Graph& graph = gradients.graph();
  const auto count = static_cast<int64_t>(graph[node.in[1]].elements());
  if (gradients.by_rows(table, count)) {
    const double table_rows = static_cast<double>(graph[table].shape[0]);
    const auto [grad, rows] = gradients.rows_of(table, count);
    return gradients.emit(kEmbeddingGradRows, node, {dout, node.in[1]}, {grad, rows},
                          {{"table_rows", table_rows}});
  }
  gradients.emit(kEmbeddingGrad, node, {dout, node.in[1]}, {gradients.part(table)});
}

constexpr OperandKind kRows[] = {OperandKind::computed, OperandKind::index};

}  // namespace

const OpDef kLinear{"linear", Form::general, linear_shape, linear_backward, true};
const OpDef kLinearGradInput{"linear_grad_input"};
const OpDef kLinearGradWeight{"linear_grad_weight"};
const OpDef kMatmul{"matmul", Form::general, matmul_shape, matmul_backward, true};
const OpDef kDotInteraction{"dot_interaction", Form::general, interaction_shape, interaction_backward, true};
const OpDef kDotInteractionGrad{"dot_interaction_grad"};
const OpDef kEmbedding{
    .name = "embedding", .infer = embedding_shape, .backward = embedding_backward, .operands = kRows};
const OpDef kEmbeddingGrad{"embedding_grad"};
const OpDef kEmbeddingGradRows{"embedding_grad_rows"};

TensorId linear(Builder& b, const std::string& name, TensorId x, const LinearOptions& o) {
  if (o.out <= 0) fail("graph", "{}: outputs must be positive, got {}", name, o.out);
  const int64_t width = b.shape(x).back();
  const Init init = Init::uniform(static_cast<float>(1 / std::sqrt(static_cast<double>(width))));
  std::vector<TensorId> in{x, b.weight(name + ".weight", {o.out, width}, o.init.value_or(init))};
  if (o.bias) in.push_back(b.weight(name + ".bias", {o.out}, o.bias_init.value_or(init)));
  return nodes(b).add_one(kLinear, name, std::move(in));
}

TensorId matmul(Builder& b, const std::string& name, TensorId x, TensorId y, bool transpose_x,
                bool transpose_y) {
  return nodes(b).add_one(kMatmul, name, {x, y}, transposes(transpose_x, transpose_y));
}

TensorId dot_interaction(Builder& b, const std::string& name, TensorId x) {
  return nodes(b).add_one(kDotInteraction, name, {x});
}

TensorId embedding(Builder& b, const std::string& name, TensorId indices, int64_t rows, int64_t width,
                   Init init) {
  return nodes(b).add_one(kEmbedding, name, {b.weight(name + ".weight", {rows, width}, init), indices});
}

}  // namespace ulp
