// Numbers as codes of the libraries' 16-bit types, which must hold them exactly. Only for files that are compiled as kernels.
#pragma once

#include "ulp/backend/cuda/convert.h"
#include "ulp/backend/cuda/launch.h"

namespace ulp::cuda {

// A number that the target has, as its code.
__device__ inline uint32_t half_code(Target target, const QuickCodec& fp16, float x) {
  return target == Target::bf16 ? float_bits(x) >> 16 : encode_even(fp16, float_bits(x)).code;
}

constexpr QuickCodec fp16_codec() {
  // sign, 5, 10: infinity is 0x7C00, NaN keep their payload.
  return make_quick({10, -14, 15, 0x7BFFu, 0x7C00u, 0x3FFu, 0x7C00u, 0x200u, 0x7FFFFFu, 0x7F800000u});
}

}  // namespace ulp::cuda
