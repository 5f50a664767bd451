// Copies within the device, as kernels, so that a recorded sequence contains them like all others.
#pragma once

#include <cstdint>

#include "ulp/tensor/device.h"

namespace ulp::cuda {

void copy_words(uint32_t* to, const uint32_t* from, uint64_t count, Stream stream);
void copy_bytes(uint8_t* to, const uint8_t* from, uint64_t count, Stream stream);

}  // namespace ulp::cuda
