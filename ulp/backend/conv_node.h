// The extents of the convolution or pool that a node computes. A linear layer is a convolution of a
// single image, one pixel high, whose pixels are the layer's rows.
#pragma once

#include "ulp/backend/conv_extents.h"
#include "ulp/graph/graph.h"

namespace ulp {

// Throws an Error if it is neither a convolution nor a linear layer.
ConvKind conv_kind(const Node& node);

// A gradient is read or written in place of its tensor.
struct ConvTensors {
  TensorId x, weight, out;
};
ConvTensors conv_tensors(const Node& node);
ConvExtents conv_extents(const Graph& graph, const Node& node);

// Max and average pooling, and their gradients.
ConvExtents pool_extents(const Graph& graph, const Node& node);

}  // namespace ulp
