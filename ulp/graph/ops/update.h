// The end of a step: what happens to the parameters once their gradients are complete.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"

namespace ulp {

// (dweight) -> squares (8 bytes: a double), their sum over the tensor.
extern const OpDef kGradSquares;
// (the squares of all weight gradients) -> norm (2): the norm of all of them, without the loss
// scale, and the factor that brings it down to the attribute max_norm (1 where it is below). A norm
// that is not a number gives itself as factor.
extern const OpDef kGradNorm;
// (dweight[, norm][, rows]) -> weight and its state, in place. The attributes name the optimizer and
// the rule. With rows the gradient has only these rows of the weight, and only they are updated.
extern const OpDef kUpdate;

// What the update of a weight is told, and the names of the state tensors that it keeps.
struct UpdateSpec {
  Attrs attrs = {};
  std::vector<std::string_view> states = {};
};

// What updates wait for.
struct UpdateOrder {
  double max_norm = 0;  // above 0: for the norm of all gradients
  // Gradients are made once to be checked, not kept, and made again for their updates (repeat.h).
  bool twice = false;
};

// Adds an update for each weight that has a gradient, with a state tensor WEIGHT.STATE for each
// name, and what the order asks for. The same for all weights, or as `choose` says.
void add_updates(Graph& graph, const UpdateSpec& spec, double max_norm = 0);
void add_updates(Graph& graph, const std::function<UpdateSpec(TensorId weight)>& choose,
                 const UpdateOrder& order = {});

}  // namespace ulp
