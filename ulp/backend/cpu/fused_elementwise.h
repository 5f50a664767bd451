// Fused elementwise operators and reductions. Each block of elements is decoded, goes through all
// stages in the first cache, is rounded wherever a tensor would have been stored, and is encoded;
// nothing in between touches memory.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

std::span<const KernelDef> fused_elementwise_kernels();

}  // namespace ulp
