// Products with a narrow accumulator, term by term: the reference's bits, vectorised.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

// Named "narrow".
std::span<const KernelDef> narrow_kernels();

}  // namespace ulp
