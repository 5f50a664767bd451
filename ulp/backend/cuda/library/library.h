// Products by NVIDIA's libraries: convolutions by cuDNN; matrix products, and convolutions that
// reduce to them, by cuBLASLt. Sums are fp32 and deterministic; operands are exact in the unit that
// multiplies (tensor_cores.h).
#pragma once

#include <vector>

#include "ulp/backend/kernel.h"

namespace ulp::cuda {

// Examining a problem queries the libraries, so a GPU must be present.
std::vector<KernelDef> library_kernels();

// Compiles, on all cores, the plans of all tasks made since the last call. Without it each plan is
// compiled when it first runs.
void prepare_products();

}  // namespace ulp::cuda
