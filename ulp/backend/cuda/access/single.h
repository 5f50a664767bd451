// Single elements of tensors stored as plain codes of one, two or four bytes and rounded to nearest
// even, with the bits and range events of codec.h. For kernels with little work, one element per
// thread: such a kernel takes as long as its instructions take to load, and code for groups of any
// storage is about ten times as large. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/codec.h"

namespace ulp::cuda {

inline bool by_singles(const StoredView& view) {
  return view.kind == Stored::plain && (view.bits == 8 || view.bits == 16 || view.bits == 32);
}
inline bool by_singles(const WriteView& view) {
  return by_singles(view.stored) && (view.stored.fp32 || view.mode == Round::nearest_even);
}

__device__ inline float load_single(const StoredView& view, uint64_t i) {
  uint32_t code;
  if (view.bits == 8) {
    code = view.codes[i];
  } else if (view.bits == 16) {
    code = reinterpret_cast<const uint16_t*>(view.codes)[i];
  } else {
    code = reinterpret_cast<const uint32_t*>(view.codes)[i];
  }
  return bits_float(view.fp32 ? code : decode_quick(view.codec, code));
}

__device__ inline void store_single(const WriteView& view, const StepState& state, uint64_t i, float x,
                                    RangeCount& seen) {
  if (view.stored.fp32) {
    float* at = reinterpret_cast<float*>(view.stored.codes) + i;
    *at = adding(view, state) ? *at + x : x;
    return;
  }
  const Encoded made = encode_even(view.stored.codec, float_bits(x));
  seen.add(made, float_bits(x));
  if (view.stored.bits == 8) {
    view.stored.codes[i] = static_cast<uint8_t>(made.code);
  } else if (view.stored.bits == 16) {
    reinterpret_cast<uint16_t*>(view.stored.codes)[i] = static_cast<uint16_t>(made.code);
  } else {
    reinterpret_cast<uint32_t*>(view.stored.codes)[i] = made.code;
  }
}

}  // namespace ulp::cuda
