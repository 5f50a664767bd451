// Optimizer steps on all parameters in one pass, and the sums of squares of gradients.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

// Named "cpu".
std::span<const KernelDef> update_kernels();

}  // namespace ulp
