// Backends, formats and options drawn at random, to plan a random graph with.
#pragma once

#include <vector>

#include "tests/support/made_up_backend.h"
#include "tests/support/random_graph.h"

namespace ulp::harness {

// Traits are drawn for each node by its name, so that a node has the same ones whatever is fused.
BackendTraits draw_backend(Random& random);
PlanOptions draw_options(Random& random, const Graph& graph);
std::vector<TensorFormat> draw_formats(Random& random, const Graph& graph);

}  // namespace ulp::harness
