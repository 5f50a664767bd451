// Which tensors of a training graph the papers count, and in which groups precision is given to
// them: a pure function of the graph's forward nodes, so that the answer is the same before and
// after reverse mode.
//
// Counted are an operator's outputs (activations) and parameters, each with its gradient, whether
// the engine computes it or not. A view counts with what it is a view of. Labels, statistics, what
// is kept for backward and optimizer state are not counted.
//
// A group begins at each input and each matrix product (OpDef::anchors). An operator's outputs and
// their gradients are in the group that has begun last; its parameters and theirs in the group of
// the operator that made its first input. A parameter with several uses counts once, at the first.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/graph/graph.h"

namespace ulp {

struct CountedTensor {
  std::string name;     // as in the graph: NODE.out, NODE.weight, and NAME.grad for gradients
  std::string_view op;  // the operator's
  int layer = 0;        // the operator's number among those that have counted tensors
  int slot = 0;         // which of the operator's tensors of this kind
  Kind kind = Kind::activation;
  size_t elements = 0;
  int group = 0;
  // None where the graph has no such tensor: the input's gradient, or all before reverse mode.
  TensorId id = {};
};

// Operator by operator in the order they run: activations, their gradients, weights, their
// gradients.
std::vector<CountedTensor> counted_tensors(const Graph& graph);

// Elements of each group, by number.
std::vector<size_t> group_elements(std::span<const CountedTensor> tensors);

}  // namespace ulp
