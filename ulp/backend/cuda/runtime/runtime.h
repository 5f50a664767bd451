// The GPU as a device: its memory, its stream, and recorded work as CUDA graphs.
#pragma once

#include <cstddef>
#include <string>

#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The first GPU that CUDA sees. Throws an Error if there is none, or if the driver or the GPU is
// too old.
Device& gpu();
// "NVIDIA H200, 132 multiprocessors, driver 13.0".
std::string gpu_text();

// Throws an Error that names the operation if a call failed.
void check(int status, const char* what);
// "of whose 143771.0 MiB 12.3 MiB are free", to follow the GPU's name.
std::string memory_left();

}  // namespace ulp::cuda
