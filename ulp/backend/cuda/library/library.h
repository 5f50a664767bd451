// Products by NVIDIA's libraries: convolutions by cuDNN, matrix products, and convolutions that are such, by cuBLASLt. Sums are fp32
// and deterministic; operands are exact in the unit that multiplies (units.h).
#pragma once

#include <vector>

#include "ulp/backend/kernel.h"

namespace ulp::cuda {

// Looking at a problem asks the libraries what they have for it, so there must be a GPU.
std::vector<KernelDef> library_kernels();

// Compiles, on all cores, the plans of all tasks made since the last time. Without it each is compiled when it first runs.
void prepare_products();

}  // namespace ulp::cuda
