// Kernels that sum over all rows of a tensor, and transposition. Slices of rows are decoded, and
// each thread sums its own columns, row by row, so that sums do not depend on the number of
// threads.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

// Named "cpu".
std::span<const KernelDef> column_kernels();

}  // namespace ulp
