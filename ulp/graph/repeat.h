// Making gradients twice. Where updates must wait for something that only all gradients together
// tell (their norm, whether one overflowed), the gradients need not all be kept until then: they
// are made, looked at and given up one after the other, and then made again, each followed by its
// update. Twins of the nodes do that, on the same activations, with the same random words, and so
// with the same bits; running statistics belong to forward nodes and move once.
#pragma once

#include <vector>

#include "ulp/graph/graph.h"

namespace ulp {

// Adds the twins NAME.again of all nodes that make the gradients of weights: of the backward nodes,
// or where sums over several micro-batches live on, only of those that finish them. To be called
// after differentiate. Returns the twin by tensor; none where a tensor has none.
std::vector<TensorId> repeat_gradients(Graph& graph);

}  // namespace ulp
