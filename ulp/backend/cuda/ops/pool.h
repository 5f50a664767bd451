// Pooling of stored images, eight elements of the result a thread. Windows that reach over the edge see what lies in the image.
//
// max_pool keeps the first of equals and the first NaN, whose bits stay as they are; its gradient adds up in fp32 in the order of
// the windows. Averages add up in fp32.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Of an image and of what pooling makes of it.
struct PoolShape {
  uint32_t h, w, c, oh, ow;
  uint32_t kh, kw, stride_h, stride_w, padding_h, padding_w;
};

void max_pool(const PoolShape& shape, const StoredView& x, const WriteView& out, uint8_t* index,
              const StepState* state, Stream stream);
void max_pool_grad(const PoolShape& shape, const StoredView& dout, const uint8_t* index, const WriteView& dx,
                   const StepState* state, Stream stream);
void avg_pool(const PoolShape& shape, const StoredView& x, const WriteView& out, const StepState* state,
              Stream stream);
void avg_pool_grad(const PoolShape& shape, const StoredView& dout, const WriteView& dx,
                   const StepState* state, Stream stream);
// Of images of so many pixels.
void global_average(uint32_t pixels, uint32_t channels, const StoredView& x, const WriteView& out,
                    const StepState* state, Stream stream);
void global_average_grad(uint32_t pixels, uint32_t channels, const StoredView& dout, const WriteView& dx,
                         const StepState* state, Stream stream);

}  // namespace ulp::cuda
