// Convolutions of single channels, on stored codes. A thread owns up to four neighbouring channels: it has
// their taps in registers and walks down strips of images, so that a pixel is decoded once for all rows that it
// reaches.
//
// 3x3 with padding 1 and strides 1 and 2 has kernels of its own where channels are even, and between images of
// bf16 with channels in fours quicker ones (depthwise_quick.h); all else goes pixel by pixel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The extents; c of both sides.
struct Depthwise {
  uint32_t n, h, w, c, oh, ow;
  uint32_t kh, kw;  // at most kDepthwiseKernel
  uint32_t stride_h, stride_w, padding_h, padding_w;
};
inline constexpr uint32_t kDepthwiseKernel = 7;

// Images are such as reads_by_vectors and writes_by_vectors take; the weight and the bias lie in any storage
// that can be read by groups, and their rounding is reported once.
void depthwise_forward(const Depthwise& conv, const StepState* state, const StoredView& x,
                       const ReadView& weight, const ReadView* bias, const WriteView& out, Stream stream);
void depthwise_grad_input(const Depthwise& conv, const StepState* state, const StoredView& dout,
                          const ReadView& weight, const WriteView& dx, Stream stream);
// Writes fp32. `partials` has room for depthwise_partials() doubles.
size_t depthwise_partials(const Depthwise& conv);
void depthwise_grad_weight(const Depthwise& conv, const StoredView& x, const StoredView& dout,
                           double* partials, float* dweight, Stream stream);

}  // namespace ulp::cuda
