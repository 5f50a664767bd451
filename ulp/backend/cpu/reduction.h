// Sums over all rows for each channel. They are added up in an order that depends on the shape alone, so they are the same on any
// number of threads and vector units.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

std::span<const KernelDef> reduction_kernels();

}  // namespace ulp
