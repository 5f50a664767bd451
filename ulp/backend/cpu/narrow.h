// Products that add up in a narrow accumulator, term by term: the reference's bits, in vectors.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

// Named "narrow".
std::span<const KernelDef> narrow_kernels();

}  // namespace ulp
