#include "ulp/backend/conv_node.h"

#include <gtest/gtest.h>

#include "ulp/graph/ops/conv.h"
#include "ulp/graph/ops/matmul.h"
#include "ulp/graph/ops/pool.h"

namespace ulp {
namespace {

TensorId tensor(Graph& graph, const std::string& name, const Shape& shape) {
  return graph.add_tensor({.name = name, .shape = shape});
}

const Node& node(Graph& graph, const OpDef& op, std::vector<TensorId> in, TensorId out, Attrs attrs = {}) {
  return graph[graph.add_node({&op, std::string(op.name), std::move(attrs), std::move(in), {out}})];
}

TEST(ConvNode, ExtentsAreTheSameInForwardAndGradients) {
  Graph graph;
  const TensorId x = tensor(graph, "x", {2, 9, 8, 6}), weight = tensor(graph, "weight", {4, 3, 2, 3}),
                 out = tensor(graph, "out", {2, 4, 9, 4});
  const Attrs attrs{{"stride_h", 3}, {"stride_w", 1}, {"padding_h", 2}, {"padding_w", 1}, {"groups", 2}};
  ConvExtents expected{.n = 2,
                       .h = 9,
                       .w = 8,
                       .c = 6,
                       .out_c = 4,
                       .kernel_h = 3,
                       .kernel_w = 2,
                       .stride_h = 3,
                       .padding_h = 2,
                       .padding_w = 1,
                       .groups = 2};
  expected = expected.with_output();
  EXPECT_EQ(expected.out_h, 4);
  EXPECT_EQ(conv_extents(graph, node(graph, kConv2d, {x, weight}, out, attrs)), expected);
  EXPECT_EQ(conv_extents(graph, node(graph, kConv2dGradInput, {out, weight}, x, attrs)), expected);
  EXPECT_EQ(conv_extents(graph, node(graph, kConv2dGradWeight, {x, out}, weight, attrs)), expected);
}

TEST(ConvNode, LinearLayersAreOneRowOfPixels) {
  Graph graph;
  const TensorId x = tensor(graph, "x", {2, 5, 6}), weight = tensor(graph, "weight", {4, 6}),
                 out = tensor(graph, "out", {2, 5, 4});
  const ConvExtents expected{.w = 10, .c = 6, .out_w = 10, .out_c = 4};
  EXPECT_EQ(conv_extents(graph, node(graph, kLinear, {x, weight}, out)), expected);
  EXPECT_EQ(conv_extents(graph, node(graph, kLinearGradInput, {out, weight}, x)), expected);
  EXPECT_EQ(conv_extents(graph, node(graph, kLinearGradWeight, {x, out}, weight)), expected);
  EXPECT_TRUE(expected.is_pointwise());
  EXPECT_EQ(expected.multiply_adds(), 240u);
}

TEST(ConvNode, PoolsAreDepthwise) {
  Graph graph;
  const TensorId x = tensor(graph, "x", {2, 9, 8, 6}), out = tensor(graph, "out", {2, 5, 4, 6});
  const Attrs attrs{{"kernel_h", 3}, {"kernel_w", 2},  {"stride_h", 2},
                    {"stride_w", 2}, {"padding_h", 1}, {"padding_w", 0}};
  const ConvExtents forward = pool_extents(graph, node(graph, kAvgPool, {x}, out, attrs));
  EXPECT_EQ(forward, forward.with_output());
  EXPECT_TRUE(forward.is_depthwise());
  EXPECT_EQ(forward.taps(), 6);
  EXPECT_EQ(pool_extents(graph, node(graph, kAvgPoolGrad, {out}, x, attrs)), forward);
}

}  // namespace
}  // namespace ulp
