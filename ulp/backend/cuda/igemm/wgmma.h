// The tensor core's product of a warpgroup, wgmma: 64 rows by `n` columns of fp32 sums, n / 2 of them
// in each thread. All are asynchronous. Only for files compiled for sm_90a.
//
// Inline assembly names every register, so macros write what differs in the number of sums alone.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/igemm/conv_igemm.h"

namespace ulp::cuda {

// The sums by their names in the instruction, and as operands of the assembly.
#define ULP_SUMS_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define ULP_SUMS_16 ULP_SUMS_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define ULP_SUMS_32 ULP_SUMS_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define ULP_SUMS_64                                                                                       \
  ULP_SUMS_32                                                                                             \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
  "%57,%58,%59,%60,%61,%62,%63"
#define ULP_FLOATS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ULP_FLOATS_8(d, i) ULP_FLOATS_4(d, i), ULP_FLOATS_4(d, i + 4)
#define ULP_FLOATS_16(d, i) ULP_FLOATS_8(d, i), ULP_FLOATS_8(d, i + 8)
#define ULP_FLOATS_32(d, i) ULP_FLOATS_16(d, i), ULP_FLOATS_16(d, i + 16)
#define ULP_FLOATS_64(d, i) ULP_FLOATS_32(d, i), ULP_FLOATS_32(d, i + 32)
// The operands after the sums: a in four registers, b's descriptor, and whether to add.
#define ULP_FACTORS_8 "{%8,%9,%10,%11}, %12"
#define ULP_FACTORS_16 "{%16,%17,%18,%19}, %20"
#define ULP_FACTORS_32 "{%32,%33,%34,%35}, %36"
#define ULP_FACTORS_64 "{%64,%65,%66,%67}, %68"
#define ULP_ADDS_8 "%13"
#define ULP_ADDS_16 "%21"
#define ULP_ADDS_32 "%37"
#define ULP_ADDS_64 "%69"
// The same operands if a is in shared memory too, and has a descriptor.
#define ULP_SHARED_FACTORS_8 "%8, %9"
#define ULP_SHARED_FACTORS_16 "%16, %17"
#define ULP_SHARED_FACTORS_32 "%32, %33"
#define ULP_SHARED_ADDS_8 "%10"
#define ULP_SHARED_ADDS_16 "%18"
#define ULP_SHARED_ADDS_32 "%34"

// Adds a (64 rows by 16 or 8, in registers) times b to d, or overwrites d.
template <int n, MmaType product>
struct Mma;
#define ULP_MMA(n, sums, product, types, tail)                                                   \
  template <>                                                                                    \
  struct Mma<n, MmaType::product> {                                                              \
    __device__ static void run(float (&d)[sums], const uint32_t (&a)[4], uint64_t b, int adds) { \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " ULP_ADDS_##sums                              \
                   ", 0; wgmma.mma_async.sync.aligned.m64n" #n types " {" ULP_SUMS_##sums        \
                   "}, " ULP_FACTORS_##sums ", p, 1, 1" tail ";}"                                \
                   : ULP_FLOATS_##sums(d, 0)                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));             \
    }                                                                                            \
  };
ULP_MMA(32, 16, bf16, "k16.f32.bf16.bf16", ", 0")
ULP_MMA(64, 32, bf16, "k16.f32.bf16.bf16", ", 0")
ULP_MMA(128, 64, bf16, "k16.f32.bf16.bf16", ", 0")
ULP_MMA(32, 16, fp16, "k16.f32.f16.f16", ", 0")
ULP_MMA(64, 32, fp16, "k16.f32.f16.f16", ", 0")
ULP_MMA(128, 64, fp16, "k16.f32.f16.f16", ", 0")
ULP_MMA(16, 8, tf32, "k8.f32.tf32.tf32", "")
ULP_MMA(32, 16, tf32, "k8.f32.tf32.tf32", "")
ULP_MMA(64, 32, tf32, "k8.f32.tf32.tf32", "")
ULP_MMA(128, 64, tf32, "k8.f32.tf32.tf32", "")

// The same in bf16, added, for a b whose columns are contiguous in memory: core matrices of eight
// rows by 16 bytes of columns.
template <int n>
struct MmaTurned;
#define ULP_MMA_TURNED(n, sums)                                                                 \
  template <>                                                                                   \
  struct MmaTurned<n> {                                                                         \
    __device__ static void run(float (&d)[sums], const uint32_t (&a)[4], uint64_t b) {          \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" ULP_SUMS_##sums \
                   "}, " ULP_FACTORS_##sums ", 1, 1, 1, 1;"                                     \
                   : ULP_FLOATS_##sums(d, 0)                                                    \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                       \
    }                                                                                           \
  };
ULP_MMA_TURNED(16, 8)
ULP_MMA_TURNED(32, 16)
ULP_MMA_TURNED(64, 32)

// In bf16, with both a (64 rows by 16) and b in shared memory.
template <int n>
struct SharedMma;
#define ULP_SHARED_MMA(n, sums)                                                                      \
  template <>                                                                                        \
  struct SharedMma<n> {                                                                              \
    __device__ static void run(float (&d)[sums], uint64_t a, uint64_t b, int adds) {                 \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " ULP_SHARED_ADDS_##sums                           \
                   ", 0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" ULP_SUMS_##sums \
                   "}, " ULP_SHARED_FACTORS_##sums ", p, 1, 1, 0, 0;}"                               \
                   : ULP_FLOATS_##sums(d, 0)                                                         \
                   : "l"(a), "l"(b), "r"(adds));                                                     \
    }                                                                                                \
  };
ULP_SHARED_MMA(16, 8)
ULP_SHARED_MMA(32, 16)
ULP_SHARED_MMA(64, 32)

}  // namespace ulp::cuda
