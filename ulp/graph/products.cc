#include "ulp/graph/products.h"

#include "ulp/graph/ops/conv.h"
#include "ulp/graph/ops/matmul.h"

namespace ulp {
namespace {

// Every element of an output meets a whole row of the weight, forward as backward.
uint64_t by_rows(const TensorInfo& out, const TensorInfo& weight) {
  return uint64_t{out.elements()} * (weight.elements() / static_cast<uint64_t>(weight.shape[0]));
}

}  // namespace

uint64_t multiply_adds(const Graph& graph, const Node& node) {
  const auto in = [&](size_t i) -> const TensorInfo& { return graph[node.in[i]]; };
  if (node.op == &kConv2d || node.op == &kLinear) return by_rows(graph[node.out[0]], in(1));
  if (node.op == &kConv2dGradInput || node.op == &kLinearGradInput) return by_rows(in(0), in(1));
  if (node.op == &kConv2dGradWeight || node.op == &kLinearGradWeight)
    return by_rows(in(1), graph[node.out[0]]);
  if (node.op == &kMatmul) {
    const Shape& a = in(0).shape;
    const int inner = node.attrs.integer("transpose_a") != 0 ? 2 : 1;
    return uint64_t{graph[node.out[0]].elements()} * static_cast<uint64_t>(a[a.rank() - inner]);
  }
  if (node.op == &kDotInteraction)
    return uint64_t{graph[node.out[0]].elements()} * static_cast<uint64_t>(in(0).shape.back());
  // Each pair once for either vector.
  if (node.op == &kDotInteractionGrad)
    return 2 * uint64_t{in(0).elements()} * static_cast<uint64_t>(in(1).shape.back());
  return 0;
}

uint64_t multiply_adds(const Graph& graph, Phase phase) {
  uint64_t sum = 0;
  for (const Node& node : graph.nodes()) {
    if (node.phase == phase) sum += multiply_adds(graph, node);
  }
  return sum;
}

}  // namespace ulp
