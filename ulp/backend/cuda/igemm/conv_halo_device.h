// Instructions for the kernel of conv_halo.h: those of sm90.h, and a few more. The host compiler gets
// stand-ins that locate operands by their descriptors, as the tensor core does.
#pragma once

#include <cstdint>
#include <cstring>

#include "ulp/backend/cuda/runtime/launch.h"
#if defined(__CUDACC__)
#include "ulp/backend/cuda/igemm/sm90.h"
#else
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#endif

namespace ulp::cuda {

#if defined(__CUDACC__)

// Makes the compiler read these registers after this point, not while products are in flight.
template <int n>
__device__ inline void hold_sums(float (&sums)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

__device__ inline void store_piece(uint32_t to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

// Copies 16 bytes to shared memory, or writes zeros there. Asynchronous.
__device__ inline void copy_piece(uint32_t to, const uint8_t* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16u : 0u)
               : "memory");
}
// Waits for this thread's copies.
__device__ inline void wait_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else

// Stand-ins: shared memory begins at address 0, and asynchronous operations complete at once.
inline uint32_t shared_address(const void*) { return 0; }
inline void barrier_init(uint32_t, uint32_t) {}
inline void barrier_init_done() {}
inline void barrier_expect(uint32_t, uint32_t) {}
inline void barrier_wait(uint32_t, uint32_t) {}
inline void proxy_fence() {}
inline void mma_fence() {}
inline void mma_commit() {}
template <int n>
void mma_wait() {}
template <int n>
void hold_sums(float (&)[n]) {}
inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t) {
  std::memcpy(emulated::dynamic_shared + to, from, bytes);
}
inline void copy_piece(uint32_t to, const uint8_t* from, bool there) {
  there ? std::memcpy(emulated::dynamic_shared + to, from, 16)
        : std::memset(emulated::dynamic_shared + to, 0, 16);
}
inline void wait_copies() {}
inline void store_piece(uint32_t to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  const uint32_t words[4] = {x, y, z, w};
  std::memcpy(emulated::dynamic_shared + to, words, sizeof words);
}

template <uint32_t selector>
uint32_t two_signed(uint32_t bytes) {
  uint32_t halves = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 15, byte = bytes >> (8 * (nibble & 3)) & 0xFFu;
    halves |= ((nibble & 8) == 0 ? byte : (byte & 0x80u) != 0 ? 0xFFu : 0u) << (8 * i);
  }
  return halves;
}

inline uint64_t block_descriptor(uint32_t address, uint32_t inner, uint32_t columns) {
  return uint64_t{address >> 4} | uint64_t{inner >> 4} << 16 | uint64_t{columns >> 4} << 32;
}

template <int n>
struct SharedMma {
  static float operand(uint64_t descriptor, uint32_t row, uint32_t k) {
    const auto field = [&](uint32_t at) { return static_cast<uint32_t>(descriptor >> at & 0x3FFFu) << 4; };
    uint16_t bits;
    std::memcpy(&bits,
                emulated::dynamic_shared + field(0) + k / 8 * field(16) + row / 8 * field(32) + row % 8 * 16 +
                    k % 8 * 2,
                sizeof bits);
    return bits_float(uint32_t{bits} << 16);
  }
  // A thread holds columns 8i + 2t and 8i + 2t + 1 of rows g and g + 8 of its warp's 16.
  static void run(float (&d)[n / 2], uint64_t a, uint64_t b, int adds) {
    const uint32_t warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (uint32_t i = 0; i < n / 2; ++i) {
      const uint32_t row = 16 * warp + g + i / 2 % 2 * 8, column = i / 4 * 8 + 2 * t + i % 2;
      float sum = adds != 0 ? d[i] : 0;
      // One rounding, as products are exact.
      for (uint32_t k = 0; k < 16; ++k) {
        sum = static_cast<float>(static_cast<double>(operand(a, row, k)) * operand(b, column, k) + sum);
      }
      d[i] = sum;
    }
  }
};

#endif

}  // namespace ulp::cuda
