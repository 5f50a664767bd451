// The convolutions of depthwise.h between images of bf16: 3x3 with padding 1 and strides 1 and 2, of channels in
// fours. A thread has few steps to a pixel: codes come a row ahead of their use, pixels outside of the image count
// as zeros, and the processor rounds. Numbers of which something comes that is not finite, or too large for that,
// are added up once more, pixel by pixel, and rounded by the scalar codec.
//
// Only for files that are compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_codes.h"
#include "ulp/backend/cuda/conv/depthwise_device.h"

namespace ulp::cuda::depthwise {

inline constexpr int kQuickWidth = 4;  // channels of a thread
using Vector = Codes<kQuickWidth, 2>;

// Whether codes are the upper halves of numbers, and all others come out as infinities and NaN.
inline bool quick_codes(const StoredView& view) {
  const CodecSpec& spec = view.codec.spec;
  return view.kind == Stored::plain && !view.fp32 && view.bits == 16 && spec.sign_shift == 15 &&
         spec.man == 7 && spec.emin == -126 && spec.max_code == 0x7F7Fu;
}

inline bool quick_extents(const Depthwise& conv) { return three_by_three(conv) && conv.c % kQuickWidth == 0; }

// Columns of a row of codes; those that are not there are zeros. `row` is where column 0 would lie.
__device__ inline Vector fetch_column(const uint8_t* row, int column, uint32_t width, uint32_t pitch, int j,
                                      bool there = true) {
  Vector raw = {};
  if (there && static_cast<uint32_t>(column + j) < width)
    raw = fetch<kQuickWidth, 2>(row + uint64_t{pitch} * static_cast<uint32_t>(j), 0);
  return raw;
}
__device__ inline void halves_to_floats(const Vector& raw, float (&x)[kQuickWidth]) {
#pragma unroll
  for (int i = 0; i < kQuickWidth / 2; ++i) {
    x[2 * i] = bits_float(raw.word[i] << 16);
    x[2 * i + 1] = bits_float(raw.word[i] & 0xFFFF0000u);
  }
}

}  // namespace ulp::cuda::depthwise
