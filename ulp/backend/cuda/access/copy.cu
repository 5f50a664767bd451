#include "ulp/backend/cuda/access/copy.h"

#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

template <typename T>
__global__ void copy_all(T* to, const T* from, uint64_t count) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x) {
    to[i] = from[i];
  }
}

}  // namespace

void copy_words(uint32_t* to, const uint32_t* from, uint64_t count, Stream stream) {
  launch(copy_all<uint32_t>, {blocks_for(count), kThreads}, stream, to, from, count);
}

void copy_bytes(uint8_t* to, const uint8_t* from, uint64_t count, Stream stream) {
  launch(copy_all<uint8_t>, {blocks_for(count), kThreads}, stream, to, from, count);
}

}  // namespace ulp::cuda
