// Starting the kernels of stencil.h. They are compiled by themselves, for sm_90a, a file for each way of feeding.
#pragma once

#include <cuda.h>

#include "ulp/backend/cuda/stencil.h"
#include "ulp/backend/cuda/stencil_grad.h"

namespace ulp::cuda {

// `map` describes the pixels to the copy engine.
using StencilStart = void(const CUtensorMap& map, const StencilCall& call, Stream stream);
StencilStart start_bf16_from_8, start_bf16, start_tf32_from_8, start_tf32_from_16, start_half_from_8,
    start_half_from_16;

using GradStart = void(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream);
GradStart start_grad, start_grad_tf32;

}  // namespace ulp::cuda
