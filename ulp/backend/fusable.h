// The elementwise operators that can be computed with others in one pass.
#pragma once

#include <string_view>

#include "ulp/graph/ops/elementwise_table.h"

namespace ulp::elementwise {

// Calls use(name) for each of them, except for copies.
template <typename Use>
void for_each_fusable(const Use& use) {
  Activations::for_each([&]<typename Op>(Op) { use(Op::kName), use(Op::kGradName); });
  Binaries::for_each([&]<typename Op>(Op) { use(Op::kName); });
  for (const std::string_view op :
       {"dropout", "dropout_grad", "sum", "seed", "batch_norm", "batch_norm_grad"})
    use(op);
}

}  // namespace ulp::elementwise
