// Launching kernels. Kernels are compiled by nvcc for a GPU. For tests without one the host
// compiler compiles them too, with ulp/backend/emulated/emulate.h included first; it runs every
// thread of every block on the CPU.
//
// Kernels are plain __global__ functions. Launches are written launch(kernel, grid, stream,
// arguments...). Dynamic shared memory is ULP_SHARED(float, name). A kernel whose single parameter
// is a large lookup table declares it as ULP_TABLE(Type) name.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define ULP_SHARED(type, name)                                   \
  extern __shared__ __align__(16) unsigned char name##_memory[]; \
  type* const name = reinterpret_cast<type*>(name##_memory)
#define ULP_TABLE(type) const __grid_constant__ type
#elif defined(ULP_EMULATED_KERNELS)
#define ULP_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::ulp::cuda::emulated::dynamic_shared)
#define ULP_TABLE(type) const type&
#endif

#include "ulp/backend/cuda/runtime/processors.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

struct Grid {
  uint32_t blocks = 1, threads = 1;
  size_t shared = 0;  // bytes of dynamic shared memory
};

// Throws an Error if the last launch was refused.
void check_launch();

#if defined(__CUDACC__) || defined(ULP_EMULATED_KERNELS)
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, Stream stream, Arguments... arguments) {
#if defined(__CUDACC__)
  kernel<<<grid.blocks, grid.threads, grid.shared, stream>>>(static_cast<Parameters>(arguments)...);
  check_launch();
#else
  (void)stream;
  emulated::run_grid(grid.blocks, grid.threads, grid.shared, [&] { kernel(arguments...); });
#endif
}
#endif

// Bytes of parameters that a kernel may have.
inline constexpr size_t kMostParameters = 32764;

// Threads of a block, unless there is a reason for another number.
inline constexpr uint32_t kThreads = 256;

// Blocks for this much independent work, one thread per item; at most `most`, because threads loop
// over the rest.
inline uint32_t blocks_for(uint64_t work, uint32_t threads = kThreads, uint32_t most = kProcessors * 8) {
  const uint64_t blocks = (work + threads - 1) / threads;
  return static_cast<uint32_t>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

}  // namespace ulp::cuda
