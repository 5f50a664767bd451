// How much work matrix products and convolutions are: the measure in which steps are compared
// before they run.
#pragma once

#include <cstdint>

#include "ulp/graph/graph.h"

namespace ulp {

// Multiplications and additions in pairs; 0 for operators that are no products.
uint64_t multiply_adds(const Graph& graph, const Node& node);

// Of all nodes of a phase.
uint64_t multiply_adds(const Graph& graph, Phase phase);

}  // namespace ulp
