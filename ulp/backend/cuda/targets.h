// Numbers as codes of the libraries' types of 8 and 16 bits, which must hold them exactly. Only for files that are compiled as kernels.
#pragma once

#include "ulp/backend/cuda/convert.h"
#include "ulp/backend/cuda/launch.h"
#include "ulp/backend/cuda/units.h"

namespace ulp::cuda {

// For target_code; bf16 and fp32 need none.
inline QuickCodec target_codec(Target target) {
  const FloatFormat format = operand_format(target == Target::e4m3 ? Unit::e4m3 : Unit::fp16);
  return make_quick(make_spec(format, format.has_inf() ? Overflow::infinity : Overflow::saturate));
}

// A number that the target has, as its code.
__device__ inline uint32_t target_code(Target target, const QuickCodec& codec, float x) {
  if (target == Target::fp32) return float_bits(x);
  return target == Target::bf16 ? float_bits(x) >> 16 : encode_even(codec, float_bits(x)).code;
}

__device__ inline void store_target(Target target, void* out, uint64_t at, uint32_t code) {
  if (target == Target::fp32) {
    static_cast<uint32_t*>(out)[at] = code;
  } else if (target == Target::e4m3) {
    static_cast<uint8_t*>(out)[at] = static_cast<uint8_t>(code);
  } else {
    static_cast<uint16_t*>(out)[at] = static_cast<uint16_t>(code);
  }
}

// `count` numbers of a group of eight.
__device__ inline void store_targets(Target target, const QuickCodec& codec, uint8_t* out, uint64_t group,
                                     uint32_t count, const float (&x)[8]) {
  uint32_t code[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) code[i] = target_code(target, codec, x[i]);
  store_codes(out, 8 * target_bytes(target), group, count, code);
}

}  // namespace ulp::cuda
