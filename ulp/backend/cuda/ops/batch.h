// Batches made on the device, of bytes that are fed and of data that is resident there. Numbers of
// examples cannot be checked on a device; they are checked where they are fed.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/base/augment.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

struct ImageBatchCall {
  const uint8_t* images = nullptr;    // (rows, height, width, channels)
  const int32_t* examples = nullptr;  // (count)
  int32_t height = 0, width = 0, channels = 0;
  Augment augment = {};
  Normalise normalise[4] = {};  // by channel
};

// Writes (count, height, width, channels) images, cropped, mirrored and normalised.
void make_image_batch(const ImageBatchCall& call, const WriteView& out, const StepState* state,
                      Stream stream);
// Writes (byte - shift) * scale of each byte.
void make_from_bytes(const uint8_t* bytes, const Normalise& normalise, const WriteView& out,
                     const StepState* state, Stream stream);
// Copies rows of `width` words each.
void take_rows(const uint32_t* from, const int32_t* examples, uint64_t count, uint64_t width, uint32_t* to,
               Stream stream);

}  // namespace ulp::cuda
