// The backend that runs on an NVIDIA GPU: cuDNN's convolutions, cuBLASLt's matrix products, own kernels for the rest.
#pragma once

#include "ulp/backend/kernel.h"

namespace ulp {

// Throws an Error where there is no GPU, its driver is too old, or this build has no CUDA.
const Backend& cuda_backend();

}  // namespace ulp
