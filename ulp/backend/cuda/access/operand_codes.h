// Values as codes of the libraries' 8- and 16-bit types, which must hold them exactly. Only for
// files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/access/convert.h"
#include "ulp/backend/cuda/library/tensor_cores.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {

// For target_code; not used for bf16 and fp32.
inline QuickCodec target_codec(DecodedType target) {
  const FloatFormat format = operand_format(target == DecodedType::e4m3 ? Unit::e4m3 : Unit::fp16);
  return make_quick(make_spec(format, format.has_inf() ? Overflow::infinity : Overflow::saturate));
}

// The code of a value that the target type holds.
__device__ inline uint32_t target_code(DecodedType target, const QuickCodec& codec, float x) {
  if (target == DecodedType::fp32) return float_bits(x);
  return target == DecodedType::bf16 ? float_bits(x) >> 16 : encode_even(codec, float_bits(x)).code;
}

__device__ inline void store_target(DecodedType target, void* out, uint64_t at, uint32_t code) {
  if (target == DecodedType::fp32) {
    static_cast<uint32_t*>(out)[at] = code;
  } else if (target == DecodedType::e4m3) {
    static_cast<uint8_t*>(out)[at] = static_cast<uint8_t>(code);
  } else {
    static_cast<uint16_t*>(out)[at] = static_cast<uint16_t>(code);
  }
}

// `count` values of a group of eight.
__device__ inline void store_targets(DecodedType target, const QuickCodec& codec, uint8_t* out,
                                     uint64_t group, uint32_t count, const float (&x)[8]) {
  uint32_t code[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) code[i] = target_code(target, codec, x[i]);
  store_codes(out, 8 * target_bytes(target), group, count, code);
}

}  // namespace ulp::cuda
