// CUDA's kernel language on the CPU, as far as the kernels of ulp/backend/cuda use it, for tests on
// machines without a GPU. The build includes it before everything else in each of their files.
// Blocks run one after the other; the threads of a block are fibers that switch at barriers and
// warp exchanges. It detects wrong indices, wrong bits and barriers that not all threads reach. It
// detects no races between blocks and says nothing about speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define ULP_EMULATED_KERNELS
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n) alignas(n)

struct uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct ulp_dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace ulp::cuda::emulated {

extern ulp_dim3 thread_index, block_index, block_dim, grid_dim;
extern unsigned char* dynamic_shared;

// Runs the body for every thread. Throws std::logic_error on a deadlock.
void run_grid(uint32_t blocks, uint32_t threads, size_t shared, const std::function<void()>& body);

void block_barrier();
void warp_barrier();
// The value of another lane of the warp; all lanes of the warp that still run must take part.
uint64_t exchange(uint64_t value, unsigned lane);
// The sum, or the largest, of all lanes' values; all lanes must take part.
uint32_t reduce(uint32_t value, bool largest);

template <typename T>
T exchange_as(T value, unsigned lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline unsigned lane() { return thread_index.x % 32; }

}  // namespace ulp::cuda::emulated

#define threadIdx (::ulp::cuda::emulated::thread_index)
#define blockIdx (::ulp::cuda::emulated::block_index)
#define blockDim (::ulp::cuda::emulated::block_dim)
#define gridDim (::ulp::cuda::emulated::grid_dim)

inline void __syncthreads() { ulp::cuda::emulated::block_barrier(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFu) { ulp::cuda::emulated::warp_barrier(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ulp::cuda::emulated::exchange_as(value, ulp::cuda::emulated::lane() ^ static_cast<unsigned>(mask));
}
template <typename T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = ulp::cuda::emulated::lane();
  return ulp::cuda::emulated::exchange_as(value, lane + delta < 32 ? lane + delta : lane);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return ulp::cuda::emulated::exchange_as(value, static_cast<unsigned>(lane));
}
inline uint32_t __reduce_add_sync(unsigned, uint32_t value) {
  return ulp::cuda::emulated::reduce(value, false);
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t value) {
  return ulp::cuda::emulated::reduce(value, true);
}

template <typename T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = old > value ? old : value;
  return old;
}
template <typename T>
T atomicOr(T* at, T value) {
  const T old = *at;
  *at = old | value;
  return old;
}
template <typename T>
T __ldg(const T* at) {
  return *at;
}
inline void __threadfence() {}
// Four of the eight bytes of two words, selected by nibbles.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned chosen) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned made = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const auto byte = static_cast<unsigned>(bytes >> (8 * (chosen >> (4 * i) & 7)) & 0xFF);
    made |= byte << (8 * i);
  }
  return made;
}
