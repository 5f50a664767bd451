// Sums over all rows for each channel, in an order that depends on the shape alone: the same on any
// number of threads and any vector unit.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

std::span<const KernelDef> reduction_kernels();

}  // namespace ulp
