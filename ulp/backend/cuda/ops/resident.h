// Batches made on the device from a set that lives there.
#pragma once

#include <cstdint>

#include "ulp/data/resident.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The first of `numbers` is the epoch, then come the numbers of `count` examples, in the device's memory. Writes (count,
// height, width, channels) images, cropped, mirrored and normalised, and their labels.
void fill_batch(const ResidentImages& set, const uint32_t* numbers, uint32_t count, float* images,
                int32_t* labels, Stream stream);

}  // namespace ulp::cuda
