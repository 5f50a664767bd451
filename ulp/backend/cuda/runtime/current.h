// Checks shared by all library calls: the current device of this thread, and alignment.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ulp/base/error.h"

namespace ulp::cuda {

inline int current_device() {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) fail("cuda", "no device: {}", cudaGetErrorString(error));
  return device;
}

// Kernels load 16 bytes at a time, and the libraries need their workspace aligned to 256: an Error
// is better than a fault on the device.
inline void check_alignment(const void* a, const void* b, const void* out, const void* workspace,
                            size_t workspace_bytes) {
  const auto bits = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  if (((bits(a) | bits(b) | bits(out)) & 15) != 0)
    fail("cuda", "operands and results must be aligned to 16 bytes");
  if (workspace_bytes != 0 && (workspace == nullptr || (bits(workspace) & 255) != 0)) {
    fail("cuda", "a workspace must be aligned to 256 bytes");
  }
}

}  // namespace ulp::cuda
