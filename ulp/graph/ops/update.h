// The end of a step: what happens to the parameters once their gradients are complete.
#pragma once

#include <span>
#include <string_view>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"

namespace ulp {

// (all weight gradients) -> norm (2): the norm of all of them, without the loss scale, and the factor that brings it
// down to the attribute max_norm (1 where it is below). A norm that is not a number gives itself as factor.
extern const OpDef kGradNorm;
// (dweight[, norm]) -> weight and its optimizer state, in place. The attributes name the optimizer.
extern const OpDef kUpdate;

// Adds an update for each weight that has a gradient, with a state tensor WEIGHT.STATE for each name; with max_norm
// above 0 also the norm.
void add_updates(Graph& graph, const Attrs& optimizer, std::span<const std::string_view> states,
                 double max_norm = 0);

}  // namespace ulp
