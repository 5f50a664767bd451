// Plain loops on the GPU that convolutions from codes to codes are held to: operands in fp32, sums
// in double.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/igemm/conv_tiling.h"

namespace ulp::cuda {

// Writes the results of a part, and the sums of its products' magnitudes. A transposed weight is
// stored as (in_c, taps, out_c).
void naive_part(const IgemmPart& part, uint32_t weight_taps, bool transposed, const float* x,
                const float* weight, float* out, float* magnitude);
// The same of the gradient of a forward convolution's weight, (out_c, taps, in_c).
void naive_grad(const IgemmShape& shape, const float* x, const float* grad, double* out, double* magnitude);

}  // namespace ulp::cuda
