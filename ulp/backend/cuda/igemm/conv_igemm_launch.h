// Launching the kernels of conv_igemm.h. They are compiled separately for sm_90a, one file per
// OperandFeed.
#pragma once

#include <cuda.h>

#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"

namespace ulp::cuda {

// `map` describes the pixels to the copy engine (TMA).
using IgemmStart = void(const CUtensorMap& map, const IgemmCall& call, Stream stream);
IgemmStart start_bf16_from_8, start_bf16, start_tf32_from_8, start_tf32_from_16, start_fp16_from_8,
    start_fp16_from_16;

using GradStart = void(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream);
GradStart start_grad, start_grad_tf32;

}  // namespace ulp::cuda
