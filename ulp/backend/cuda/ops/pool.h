// Pooling of stored images, eight result elements per thread. A window that reaches over the edge
// sees only what lies in the image.
//
// max_pool keeps the first of equal values and the first NaN, with its bits unchanged; its gradient
// adds in fp32 in the order of the windows. Averages add in fp32.
#pragma once

#include <cstdint>

#include "ulp/backend/conv_extents.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

void max_pool(const ConvExtents32& shape, const StoredView& x, const WriteView& out, uint8_t* index,
              const StepState* state, Stream stream);
void max_pool_grad(const ConvExtents32& shape, const StoredView& dout, const uint8_t* index,
                   const WriteView& dx, const StepState* state, Stream stream);
void avg_pool(const ConvExtents32& shape, const StoredView& x, const WriteView& out, const StepState* state,
              Stream stream);
void avg_pool_grad(const ConvExtents32& shape, const StoredView& dout, const WriteView& dx,
                   const StepState* state, Stream stream);
// For images with this many pixels.
void global_average(uint32_t pixels, uint32_t channels, const StoredView& x, const WriteView& out,
                    const StepState* state, Stream stream);
void global_average_grad(uint32_t pixels, uint32_t channels, const StoredView& dout, const WriteView& dx,
                         const StepState* state, Stream stream);

}  // namespace ulp::cuda
