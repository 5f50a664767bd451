// GPU operations used by the kernels of pointwise.h: asynchronous copies to shared memory, a warp's
// mma, two codes to two bf16. The CPU versions are written out. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/conv/pointwise.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {

// Copies 16 bytes to shared memory, of which `bytes` exist; the others become 0.
__device__ inline void copy_piece(uint8_t* to, const uint8_t* from, uint32_t bytes) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes)
               : "memory");
#else
  for (uint32_t i = 0; i < 16; ++i) to[i] = i < bytes ? from[i] : 0;
#endif
}
// Commits the copies started so far as a group.
__device__ inline void copy_commit() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `n` groups are in flight.
template <int n>
__device__ inline void copy_wait() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}
// For a ring of stages: waits until the oldest has arrived.
__device__ inline void wait_stage(uint32_t stages) {
  if (stages == 2) {
    copy_wait<0>();
  } else if (stages == 3) {
    copy_wait<1>();
  } else {
    copy_wait<2>();
  }
}

// Copies a tile, of which `there` bytes exist in memory, with all threads of the block. Source,
// destination and the tile's size are multiples of 16 bytes.
__device__ inline void copy_tile(uint8_t* to, const uint8_t* from, uint32_t bytes, uint64_t there) {
  if (there >= bytes) {
    for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * blockDim.x)
      copy_piece(to + at, from + at, 16);
    return;
  }
  const auto last = static_cast<uint32_t>(there);
  for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 16 * blockDim.x) {
    const uint32_t left = at < last ? last - at : 0;
    copy_piece(to + at, left > 0 ? from + at : from, left < 16 ? left : 16);
  }
}

#if defined(__CUDA_ARCH__)
// Adds a (16 by 16) times b (16 by 8) to d.
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// Adds kRows times 16 rows of a, 16 columns each, times 64 columns of b, in bf16 with fp32 sums, by
// a warp. The registers are the operands of mma.m16n8k16; b[pair] has those of two blocks of eight
// columns.
template <int kRows>
__device__ inline void multiply_step(float (&d)[kRows][8][4], const uint32_t (&a)[kRows][4],
                                     const uint32_t (&b)[4][4]) {
#if defined(__CUDA_ARCH__)
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      multiply_add(d[m][2 * pair], a[m], b[pair][0], b[pair][1]);
      multiply_add(d[m][2 * pair + 1], a[m], b[pair][2], b[pair][3]);
    }
  }
#elif !defined(__CUDACC__)
  // The lanes' values: [element of a lane's registers][lane].
  static float left[kRows][8][1024], right[16][2][1024];
  const uint32_t self = threadIdx.x;
  const auto half = [](uint32_t word, uint32_t i) {
    return bits_float(i == 0 ? word << 16 : word & 0xFFFF0000u);
  };
  for (uint32_t i = 0; i < 8 * kRows; ++i) left[i / 8][i % 8][self] = half(a[i / 8][i / 2 % 4], i % 2);
  for (uint32_t i = 0; i < 32; ++i) right[i / 2][i % 2][self] = half(b[i / 8][i / 2 % 4], i % 2);
  __syncwarp();
  const uint32_t first = self / 32 * 32, g = self % 32 / 4, t = self % 4;
  for (uint32_t m = 0; m < kRows; ++m) {
    for (uint32_t i = 0; i < 32; ++i) {
      // Row g or g + 8, column 2t or 2t + 1 of a block of eight.
      const uint32_t j = i / 4, row = i / 2 % 2, column = 2 * t + i % 2;
      float sum = d[m][j][i % 4];
      for (uint32_t k = 0; k < 16; ++k) {
        const uint32_t high = k / 8, place = k % 8 / 2;
        // One rounding: the product is exact.
        sum = static_cast<float>(
            static_cast<double>(left[m][2 * (2 * high + row) + k % 2][first + 4 * g + place]) *
                right[2 * j + high][k % 2][first + 4 * column + place] +
            sum);
      }
      d[m][j][i % 4] = sum;
    }
  }
  __syncwarp();
#endif
}

// Two bytes as sign-extended halves of a register: the selector names a byte, or with its high bit
// set the byte's sign.
template <uint32_t selector>
__device__ inline uint32_t signed_halves(uint32_t bytes) {
  uint32_t halves = 0;
#if defined(__CUDA_ARCH__)
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(halves) : "r"(bytes), "n"(selector));
#else
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 15, byte = bytes >> (8 * (nibble & 3)) & 0xFF;
    halves |= (nibble < 8 ? byte : (byte & 0x80) != 0 ? 0xFFu : 0u) << (8 * i);
  }
#endif
  return halves;
}

// Two bf16 times two powers of two, exact.
__device__ inline uint32_t lifted_halves(uint32_t two, uint32_t by) {
#if defined(__CUDA_ARCH__)
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(two), "r"(by));
  return product;
#else
  const float low = bits_float(two << 16) * bits_float(by << 16);
  const float high = bits_float(two & 0xFFFF0000u) * bits_float(by & 0xFFFF0000u);
  return float_bits(low) >> 16 | (float_bits(high) & 0xFFFF0000u);
#endif
}

}  // namespace ulp::cuda
