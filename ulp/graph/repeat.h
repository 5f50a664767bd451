// Computing gradients twice. Updates may have to wait for what only all gradients together tell:
// their norm, or whether one overflowed. The gradients need not all be kept until then. They are
// computed, looked at and dropped one after the other, and then recomputed, each followed by its
// update. Twins of the nodes do that from the same activations, with the same random words and so
// the same bits. Running statistics belong to forward nodes and move once.
#pragma once

#include <vector>

#include "ulp/graph/graph.h"

namespace ulp {

// Adds the twins NAME.again of all nodes that compute weight gradients: of the backward nodes, or,
// if sums over several micro-batches live on, only of the nodes that finish them. Call it after
// differentiate. Returns the twin by tensor; none if a tensor has none.
std::vector<TensorId> repeat_gradients(Graph& graph);

}  // namespace ulp
