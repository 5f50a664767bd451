// Sums in which an operand is repeated, on plain fp32 arrays.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/ops/move.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// out[i] = a[place of i in a] + b[place of i in b]. A walk moves by 0 along the axes over which its
// operand is repeated.
void broadcast_add(const Walk& a_walk, const Walk& b_walk, uint64_t elements, const float* a, const float* b,
                   float* out, Stream stream);

// Of each element of the smaller tensor, the sum over its repetitions in the larger one.
struct BroadcastSum {
  Walk kept;      // over the elements of the smaller tensor: where the first repetition lies
  Walk repeated;  // over the repetitions of an element: how far each is from the first
  uint64_t elements, repetitions;
};
void broadcast_sum(const BroadcastSum& sum, const float* dout, float* dx, Stream stream);

}  // namespace ulp::cuda
