#include "ulp/backend/update.h"

#include <cmath>

namespace ulp {

Attrs update_attrs(const OptimizerConfig& config) {
  return {{"optimizer", static_cast<double>(config.kind)},
          {"lr", config.lr},
          {"momentum", config.momentum},
          {"nesterov", config.nesterov ? 1.0 : 0.0},
          {"weight_decay", config.weight_decay},
          {"beta1", config.beta1},
          {"beta2", config.beta2},
          {"eps", config.eps}};
}

OptimizerConfig update_config(const Attrs& attrs) {
  OptimizerConfig config;
  config.kind = static_cast<OptimizerKind>(attrs.integer("optimizer"));
  config.lr = attrs.real("lr");
  config.momentum = attrs.real("momentum");
  config.nesterov = attrs.integer("nesterov") != 0;
  config.weight_decay = attrs.real("weight_decay");
  config.beta1 = attrs.real("beta1");
  config.beta2 = attrs.real("beta2");
  config.eps = attrs.real("eps");
  return config;
}

// The factor comes from the norm in double: one that fp32 cannot hold still scales as it should.
NormAndFactor norm_and_factor(double squares, double grad_scale, double max_norm) {
  const double norm = std::sqrt(squares) * std::abs(grad_scale);
  const double factor = std::isnan(norm) ? norm : norm > max_norm ? max_norm / norm : 1;
  return {static_cast<float>(norm), static_cast<float>(factor)};
}

}  // namespace ulp
