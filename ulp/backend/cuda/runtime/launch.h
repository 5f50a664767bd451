// How a kernel is started. Kernels are compiled by nvcc for a GPU. For tests without one the host's compiler compiles them
// too, with ulp/backend/emulated/emulate.h included first, which runs every thread of every block on the CPU.
//
// Kernels are plain __global__ functions. Launches are written launch(kernel, grid, stream, arguments...), shared memory of
// a size that is known only at the launch ULP_SHARED(float, name). A kernel whose one parameter is a large table, which
// threads look things up in, declares it as ULP_TABLE(Type) name.
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

inline constexpr uint32_t kThreads = 256;  // of a block, where nothing speaks for another number

// Blocks for so much independent work, a thread each; at most `most`, since threads go on with what is left.
inline uint32_t blocks_for(uint64_t work, uint32_t threads = kThreads, uint32_t most = kProcessors * 8) {
  const uint64_t blocks = (work + threads - 1) / threads;
  return static_cast<uint32_t>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

}  // namespace ulp::cuda
