// The convolutions of depthwise.h for bf16 images: 3x3 with padding 1 and stride 1 or 2, channels
// in multiples of four. A thread needs few instructions per pixel: codes are prefetched a row
// ahead, pixels outside the image count as zeros, and the hardware rounds. If a result is not
// finite, or too large for that, the thread's results are recomputed pixel by pixel and rounded by
// the scalar codec.
//
// Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_codes.h"
#include "ulp/backend/cuda/conv/depthwise_device.h"

namespace ulp::cuda::depthwise {

inline constexpr int kQuickWidth = 4;  // channels of a thread
using Vector = Codes<kQuickWidth, 2>;

// Whether codes are the upper halves of fp32 patterns, and all codes beyond the largest decode to
// infinity and NaN.
inline bool quick_codes(const StoredView& view) {
  const CodecSpec& spec = view.codec.spec;
  return view.kind == Stored::plain && !view.fp32 && view.bits == 16 && spec.sign_shift == 15 &&
         spec.man == 7 && spec.emin == -126 && spec.max_code == 0x7F7Fu;
}

inline bool quick_extents(const ConvExtents32& conv) {
  return three_by_three(conv) && conv.c % kQuickWidth == 0;
}

// Columns of a row of codes; columns outside are zeros. `row` is where column 0 would be.
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
