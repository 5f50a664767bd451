// The backend for an NVIDIA GPU: own kernels, and cuDNN and cuBLASLt for the remaining products
// (README.md).
#pragma once

#include "ulp/backend/kernel.h"

namespace ulp {

// Throws an Error if there is no GPU, its driver is too old, or this build has no CUDA.
const Backend& cuda_backend();

}  // namespace ulp
