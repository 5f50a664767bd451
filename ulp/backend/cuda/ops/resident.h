// Batches made on the device from a data set that is resident there.
#pragma once

#include <cstdint>

#include "ulp/data/resident.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// `numbers`, in device memory, has the epoch and then the numbers of `count` examples. Writes
// (count, height, width, channels) images, cropped, mirrored and normalised, and their labels.
void fill_batch(const ResidentImages& set, const uint32_t* numbers, uint32_t count, float* images,
                int32_t* labels, Stream stream);

}  // namespace ulp::cuda
