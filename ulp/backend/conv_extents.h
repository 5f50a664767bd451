// The extents of a convolution, named alike in forward and in both gradients. A pool is a depthwise
// convolution without a weight. Plain numbers for host and device; ulp/backend/conv_node.h makes
// them from a node.
#pragma once

#include <compare>
#include <cstdint>

#include "ulp/base/device.h"

namespace ulp {

enum class ConvKind : uint8_t { forward, grad_input, grad_weight };

template <typename Int>
struct BasicConvExtents {
  Int n = 1, h = 1, w = 1, c = 1;       // images read
  Int out_h = 1, out_w = 1, out_c = 1;  // images written
  Int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, padding_h = 0, padding_w = 0;
  Int groups = 1;

  auto operator<=>(const BasicConvExtents&) const = default;

  ULP_HD constexpr Int taps() const { return kernel_h * kernel_w; }
  constexpr bool is_pointwise() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && padding_h == 0 && padding_w == 0 && groups == 1;
  }
  constexpr bool is_depthwise() const { return groups == c && groups == out_c; }

  // Over all images.
  constexpr uint64_t pixels() const { return uint64_t(n) * uint64_t(h) * uint64_t(w); }
  constexpr uint64_t out_pixels() const { return uint64_t(n) * uint64_t(out_h) * uint64_t(out_w); }
  constexpr uint64_t x_elements() const { return pixels() * uint64_t(c); }
  constexpr uint64_t out_elements() const { return out_pixels() * uint64_t(out_c); }
  constexpr uint64_t weight_elements() const {
    return uint64_t(out_c) * uint64_t(taps()) * uint64_t(c / groups);
  }
  constexpr uint64_t multiply_adds() const { return out_pixels() * weight_elements(); }

  // Where elements lie.
  ULP_HD constexpr Int x_at(Int image, Int y, Int x, Int channel) const {
    return ((image * h + y) * w + x) * c + channel;
  }
  ULP_HD constexpr Int out_at(Int image, Int y, Int x, Int channel) const {
    return ((image * out_h + y) * out_w + x) * out_c + channel;
  }
  // The image's row and column that kernel row or column `k` reads for output row or column `o`.
  // They may lie outside, so `Int` must be signed.
  static constexpr bool kSigned = Int(-1) < Int(0);
  ULP_HD constexpr Int row(Int o, Int k) const requires kSigned { return o * stride_h - padding_h + k; }
  ULP_HD constexpr Int column(Int o, Int k) const requires kSigned { return o * stride_w - padding_w + k; }
  ULP_HD constexpr bool inside(Int y, Int x) const requires kSigned {
    return y >= 0 && y < h && x >= 0 && x < w;
  }

  // The same with the output's height and width computed from the other extents.
  constexpr BasicConvExtents with_output() const {
    BasicConvExtents made = *this;
    made.out_h = (h + 2 * padding_h - kernel_h) / stride_h + 1;
    made.out_w = (w + 2 * padding_w - kernel_w) / stride_w + 1;
    return made;
  }
  // In another type, which must hold them.
  template <typename To>
  constexpr BasicConvExtents<To> as() const {
    return {To(n),        To(h),        To(w),        To(c),        To(out_h),     To(out_w),     To(out_c),
            To(kernel_h), To(kernel_w), To(stride_h), To(stride_w), To(padding_h), To(padding_w), To(groups)};
  }
};

// With the channels of a group divided out once, for loops that ask at every element.
template <typename Int>
struct GroupedConv : BasicConvExtents<Int> {
  Int group_c, group_out;

  explicit constexpr GroupedConv(const BasicConvExtents<Int>& all)
      : BasicConvExtents<Int>(all), group_c(all.c / all.groups), group_out(all.out_c / all.groups) {}

  ULP_HD constexpr Int weight_at(Int o, Int y, Int x, Int i) const {
    return ((o * this->kernel_h + y) * this->kernel_w + x) * group_c + i;
  }
  // The first channel of the images that output channel `o` reads.
  ULP_HD constexpr Int first_channel(Int o) const { return o / group_out * group_c; }
};

using ConvExtents = BasicConvExtents<int64_t>;
using ConvExtents32 = BasicConvExtents<uint32_t>;  // for CUDA kernels

}  // namespace ulp
