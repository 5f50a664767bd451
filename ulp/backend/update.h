// How an optimizer and a rule are told to update nodes (ulp/graph/ops/update.h), and what they are
// told at each step.
#pragma once

#include "ulp/backend/access.h"
#include "ulp/backend/step_state.h"
#include "ulp/backend/update_scalars.h"
#include "ulp/base/device.h"
#include "ulp/graph/graph.h"
#include "ulp/graph/ops/update.h"
#include "ulp/optim/optimizer.h"
#include "ulp/optim/rule.h"

namespace ulp {

// How one parameter is updated. It has only what a kernel must know of the rule: extra bits, for
// example, are part of the weight's storage.
struct ParameterUpdate {
  OptimizerConfig optimizer = {};
  bool compensated = false;       // Kahan's sum; the compensation is the last state
  bool stochastic = false;        // the new weight is rounded at random
  bool state_stochastic = false;  // and its optimizer state
  double lr_factor = 1;           // of the parameter's group

  bool operator==(const ParameterUpdate&) const = default;
};

// The attributes of an update node with the names of its states; and back.
UpdateSpec update_spec(const ParameterUpdate& update);
UpdateSpec update_spec(const OptimizerConfig& optimizer);
ParameterUpdate parameter_update(const Attrs& attrs);

// Whether single rows of a table, which have a multiple of eight elements, can be written in a
// storage: not if they share a scale, a statistic or a word of extra bits with others.
bool has_rows(const Storage& storage, int64_t width);

// An update node as kernels take it.
struct UpdateNode {
  UpdateNode(const PlanContext& plan, const Node& node);

  ParameterUpdate update;
  Optimizer optimizer;
  TensorId grad, norm, weight;
  std::vector<TensorId> states;  // of the optimizer
  TensorId compensation;         // none where there is none
  TensorId rows;                 // of a table; none where the gradient has all of the weight

  // The scalars of this step; `clip_factor` is the second number that grad_norm writes, 1 where
  // there is none.
  UpdateScalars scalars(const PlanContext& plan, const StepState& state, float clip_factor) const;
  // How the weight and its optimizer state are written.
  Round weight_round() const { return update.stochastic ? Round::stochastic : Round::nearest_even; }
  Round state_round() const { return update.state_stochastic ? Round::stochastic : Round::nearest_even; }
};

}  // namespace ulp
