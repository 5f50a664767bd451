// Convolutions for tests: square images and a square kernel.
#pragma once

#include "ulp/backend/conv_extents.h"

namespace ulp {

constexpr ConvExtents square_conv(int64_t n, int64_t size, int64_t c, int64_t out_c, int64_t kernel,
                                  int64_t stride, int64_t padding, int64_t groups = 1) {
  return ConvExtents{n, size, size, c, 1, 1, out_c, kernel, kernel, stride, stride, padding, padding, groups}
      .with_output();
}
// Padded such that a stride of 1 keeps the size, if the kernel is odd.
constexpr ConvExtents32 same_conv(int64_t n, int64_t size, int64_t c, int64_t out_c, int64_t kernel,
                                  int64_t stride) {
  return square_conv(n, size, c, out_c, kernel, stride, kernel / 2).as<uint32_t>();
}

}  // namespace ulp
