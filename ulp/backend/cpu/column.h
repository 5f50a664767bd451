// Kernels that sum over all rows of a tensor: slices of rows are decoded, and each thread adds up columns of its own,
// row after row, so that sums do not depend on the number of threads. And transposition.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

// Named "cpu".
std::span<const KernelDef> column_kernels();

}  // namespace ulp
