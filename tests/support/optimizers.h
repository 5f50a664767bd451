// Every optimizer of the list, for tests that go through all of them. A new optimizer is tested
// without a line here.
#pragma once

#include <string>
#include <vector>

#include "ulp/optim/optimizer.h"

namespace ulp {

// With the defaults of its traits. Every optimizer decays weights here, whatever its default is.
inline OptimizerConfig test_optimizer(OptimizerKind kind) {
  const OptimizerTraits& traits = optimizer_traits(kind);
  OptimizerConfig made{.kind = kind, .lr = traits.lr, .momentum = traits.momentum, .weight_decay = 0.01};
  if (traits.beta2 > 0) made.beta2 = traits.beta2;
  if (traits.eps > 0) made.eps = traits.eps;
  return made;
}

inline std::vector<OptimizerKind> optimizer_kinds() {
  std::vector<OptimizerKind> kinds;
  for (size_t i = 0; i < Optimizers::kCount; ++i) kinds.push_back(static_cast<OptimizerKind>(i));
  return kinds;
}

struct NamedOptimizer {
  std::string name;
  OptimizerConfig config;
};

// Each in every form that kernels tell apart: without momentum, with it, and with Nesterov's look
// ahead, where the optimizer has them.
inline std::vector<NamedOptimizer> optimizer_forms() {
  std::vector<NamedOptimizer> forms;
  for (const OptimizerKind kind : optimizer_kinds()) {
    const std::string name(optimizer_name(kind));
    OptimizerConfig config = test_optimizer(kind);
    if (!optimizer_traits(kind).momentums) {
      forms.push_back({name, config});
      continue;
    }
    OptimizerConfig plain = config, nesterov = config;
    plain.momentum = 0;
    nesterov.nesterov = true;
    forms.push_back({name, plain});
    forms.push_back({name + " with momentum", config});
    forms.push_back({name + " with nesterov", nesterov});
  }
  return forms;
}

}  // namespace ulp
