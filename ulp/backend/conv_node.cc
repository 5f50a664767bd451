#include "ulp/backend/conv_node.h"

#include "ulp/base/error.h"
#include "ulp/graph/ops/conv.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/graph/ops/pool.h"

namespace ulp {
namespace {

ConvExtents of_images(const Node& node, const Shape& x, const Shape& out) {
  return {.n = x.n(),
          .h = x.h(),
          .w = x.w(),
          .c = x.c(),
          .out_h = out.h(),
          .out_w = out.w(),
          .out_c = out.c(),
          .stride_h = node.attrs.integer("stride_h"),
          .stride_w = node.attrs.integer("stride_w"),
          .padding_h = node.attrs.integer("padding_h"),
          .padding_w = node.attrs.integer("padding_w")};
}

}  // namespace

ConvKind conv_kind(const Node& node) {
  if (node.op == &kConv2d || node.op == &kLinear) return ConvKind::forward;
  if (node.op == &kConv2dGradInput || node.op == &kLinearGradInput) return ConvKind::grad_input;
  if (node.op == &kConv2dGradWeight || node.op == &kLinearGradWeight) return ConvKind::grad_weight;
  fail("backend", "{} is no convolution", node.op->name);
}

ConvTensors conv_tensors(const Node& node) {
  switch (conv_kind(node)) {
    case ConvKind::forward:
      return {node.in[0], node.in[1], node.out[0]};
    case ConvKind::grad_input:
      return {node.out[0], node.in[1], node.in[0]};
    default:
      return {node.in[0], node.out[0], node.in[1]};
  }
}

ConvExtents conv_extents(const Graph& graph, const Node& node) {
  const ConvTensors tensors = conv_tensors(node);
  const Shape &x = graph[tensors.x].shape, &weight = graph[tensors.weight].shape,
              &out = graph[tensors.out].shape;
  if (weight.rank() == 2) {
    const auto rows = static_cast<int64_t>(x.rows());
    return {.w = rows, .c = x.back(), .out_w = rows, .out_c = out.back()};
  }
  ConvExtents made = of_images(node, x, out);
  made.kernel_h = weight[1];
  made.kernel_w = weight[2];
  made.groups = node.attrs.integer("groups");
  return made;
}

ConvExtents pool_extents(const Graph& graph, const Node& node) {
  const bool forward = node.op == &kMaxPool || node.op == &kAvgPool;
  const Shape &x = graph[forward ? node.in[0] : node.out[0]].shape,
              &out = graph[forward ? node.out[0] : node.in[0]].shape;
  ConvExtents made = of_images(node, x, out);
  made.kernel_h = node.attrs.integer("kernel_h");
  made.kernel_w = node.attrs.integer("kernel_w");
  made.groups = made.c;
  return made;
}

}  // namespace ulp
