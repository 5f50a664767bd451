// Depthwise convolutions on stored codes. A thread owns up to four neighbouring channels: it keeps
// their taps in registers and walks down strips of images, so that a pixel is decoded once for all
// rows that it reaches.
//
// 3x3 kernels with padding 1 and stride 1 or 2 have their own kernels if channels are even; for
// bf16 images with channels in multiples of four there are faster ones (depthwise_bf16.h).
// Everything else is computed pixel by pixel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/conv_extents.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Along an axis of a kernel.
inline constexpr uint32_t kDepthwiseKernel = 7;

// Images must satisfy reads_by_vectors or writes_by_vectors. Weight and bias may have any storage
// that can be read by groups; their rounding is reported once.
void depthwise_forward(const ConvExtents32& conv, const StepState* state, const StoredView& x,
                       const ReadView& weight, const ReadView* bias, const WriteView& out, Stream stream);
void depthwise_grad_input(const ConvExtents32& conv, const StepState* state, const StoredView& dout,
                          const ReadView& weight, const WriteView& dx, Stream stream);
// Writes fp32. `partials` must have room for depthwise_partials() doubles.
size_t depthwise_partials(const ConvExtents32& conv);
void depthwise_grad_weight(const ConvExtents32& conv, const StoredView& x, const StoredView& dout,
                           double* partials, float* dweight, Stream stream);

}  // namespace ulp::cuda
