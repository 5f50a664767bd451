// Hopper instructions used by the implicit GEMM kernels: mbarriers, copies that complete on them
// (TMA), and what orders wgmma (wgmma.h). Only for files compiled for sm_90a.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/igemm/wgmma.h"

namespace ulp::cuda {

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes initialised barriers visible to the copy engine.
__device__ inline void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Orders this thread's writes to shared memory before the copy engine's writes there.
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Every thread that read or wrote what the barrier guards arrives itself. After __syncwarp() one
// lane could arrive for all, but this costs nothing here (measured) and the race detector of
// compute-sanitizer can follow it. What the tensor core has read is released by one lane.
__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_wait(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "again;\n}\n" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// Copies a box of a 2-D tensor; elements outside the tensor become 0.
__device__ inline void copy_box(uint32_t to, const CUtensorMap* map, int32_t x, int32_t y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], [%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Makes the compiler compute these registers before this point, not between wgmma instructions in
// flight.
template <int n>
__device__ inline void hold_operands(uint32_t (&a)[n][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i)
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
}

__device__ inline void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `n` wgmma groups are in flight.
template <int n>
__device__ inline void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

// Descriptor of a right operand in shared memory: core matrices of eight columns by 16 bytes,
// without swizzle. `inner` and `columns` are the distances in bytes between neighbours along the
// inner axis and along the columns.
__device__ inline uint64_t block_descriptor(uint32_t address, uint32_t inner, uint32_t columns) {
  return uint64_t{(address & 0x3FFFFu) >> 4} | uint64_t{inner >> 4} << 16 | uint64_t{columns >> 4} << 32;
}

// Two bytes, sign-extended to 16 bits: a selector with the high bit set replicates the byte's sign.
template <uint32_t selector>
__device__ inline uint32_t two_signed(uint32_t bytes) {
  uint32_t halves;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(halves) : "r"(bytes), "n"(selector));
  return halves;
}

// Sets the registers of a warpgroup's threads from here on. All its warps must execute it.
template <int count>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

}  // namespace ulp::cuda
