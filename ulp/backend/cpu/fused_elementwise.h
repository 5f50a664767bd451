// Elementwise operators and reductions, with what is inlined in them: each block of elements is decoded, goes through all
// stages near the core, is rounded wherever a tensor would have been written, and is encoded; nothing in between touches
// memory.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

std::span<const KernelDef> fused_elementwise_kernels();

}  // namespace ulp
