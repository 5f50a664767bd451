#include "ulp/backend/update.h"

#include <stdexcept>

#include "ulp/numeric/nearest.h"

namespace ulp {

constexpr std::string_view kCompensation = "compensation";

UpdateSpec update_spec(const ParameterUpdate& update) {
  const OptimizerConfig& config = update.optimizer;
  UpdateSpec spec;
  spec.attrs = {{"optimizer", static_cast<double>(config.kind)},
                {"lr", config.lr},
                {"momentum", config.momentum},
                {"nesterov", config.nesterov ? 1.0 : 0.0},
                {"weight_decay", config.weight_decay},
                {"beta1", config.beta1},
                {"beta2", config.beta2},
                {"eps", config.eps},
                {"compensated", update.compensated ? 1.0 : 0.0},
                {"stochastic", update.stochastic ? 1.0 : 0.0},
                {"state_stochastic", update.state_stochastic ? 1.0 : 0.0},
                {"lr_factor", update.lr_factor}};
  for (const OptimizerState& state : optimizer_states(make_optimizer(config)))
    spec.states.push_back(state.name);
  if (update.compensated) spec.states.push_back(kCompensation);
  return spec;
}

UpdateSpec update_spec(const OptimizerConfig& optimizer) {
  return update_spec(ParameterUpdate{.optimizer = optimizer});
}

ParameterUpdate parameter_update(const Attrs& attrs) {
  ParameterUpdate update;
  OptimizerConfig& config = update.optimizer;
  config.kind = static_cast<OptimizerKind>(attrs.integer("optimizer"));
  config.lr = attrs.real("lr");
  config.momentum = attrs.real("momentum");
  config.nesterov = attrs.integer("nesterov") != 0;
  config.weight_decay = attrs.real("weight_decay");
  config.beta1 = attrs.real("beta1");
  config.beta2 = attrs.real("beta2");
  config.eps = attrs.real("eps");
  update.compensated = attrs.integer("compensated") != 0;
  update.stochastic = attrs.integer("stochastic") != 0;
  update.state_stochastic = attrs.integer("state_stochastic") != 0;
  update.lr_factor = attrs.real("lr_factor");
  return update;
}

namespace {

// In a narrow arithmetic with numbers of its format alone.
Optimizer optimizer_in(const PlanContext& plan, const OptimizerConfig& config) {
  if (!plan.options.arithmetic) return make_optimizer(config);
  const Nearest near = make_nearest(*plan.options.arithmetic);
  Optimizer made = make_optimizer(representable(config, *plan.options.arithmetic));
  std::visit([&](auto& op) { op.round_constants(near); }, made);
  return made;
}

}  // namespace

bool has_rows(const Storage& storage, int64_t width) {
  constexpr int64_t kWord = 32;  // of extra bits
  if (const Split* split = std::get_if<Split>(&storage)) return width * split->side_bits() % kWord == 0;
  return std::holds_alternative<Plain>(storage);
}

UpdateNode::UpdateNode(const PlanContext& plan, const Node& node)
    : update(parameter_update(node.attrs)),
      optimizer(optimizer_in(plan, update.optimizer)),
      grad(node.in[0]),
      weight(node.out[0]),
      states(node.out.begin() + 1, node.out.end()) {
  for (size_t i = 1; i < node.in.size(); ++i)
    (plan.graph[node.in[i]].element == Element::int32 ? rows : norm) = node.in[i];
  for (const TensorId id : node.out) {
    const Storage& storage = plan.formats[static_cast<size_t>(id.index)].storage;
    if (rows && !has_rows(storage, plan.graph[id].shape.back()))
      throw std::logic_error(plan.graph[id].name + ": rows of " + storage_name(storage) +
                             " are not written alone");
  }
  if (update.compensated) {
    compensation = states.back();
    states.pop_back();
  }
}

UpdateScalars UpdateNode::scalars(const PlanContext& plan, const StepState& state, float clip_factor) const {
  const UpdateScalars scalars =
      parameter_scalars(state.update, clip_factor, static_cast<float>(update.lr_factor));
  if (!plan.options.arithmetic) return scalars;
  const float decay = std::visit([](const auto& rule) { return rule.weight_decay; }, optimizer);
  return narrow_scalars(scalars, decay, make_nearest(*plan.options.arithmetic));
}

}  // namespace ulp
