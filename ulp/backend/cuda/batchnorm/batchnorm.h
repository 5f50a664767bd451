// Batch norm and activation kernels for the formats that models train in: bf16, 8-bit formats with
// 4 or 5 exponent bits, which the GPU converts natively, and other 16-bit formats. They give the
// bits, sums and range events of the general kernels (fused_elementwise.h), in fewer instructions
// and with one launch per reduction.
//
// Each function takes the call of its pattern and returns true. If a format or shape is not
// supported it does nothing and returns false; the general kernels must then run.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/base/device.h"

namespace ulp::cuda {

// The hardware type that a format's codes are read as; `none` if there is no such type.
// - e4, e5: 8-bit codes with 4 or 5 exponent bits. e4 values differ from the hardware type's by a
//   power of two. The topmost codes mean something else to the hardware; a group with such a code
//   takes a slow path.
// - wide: 16-bit codes that are all numbers, with fp32's range except for some binades at its ends:
//   fp(6,9,0) and the like. The hardware lacks them; a few constants in the call tell how to shift
//   and round them.
//
// Kernels are compiled for bf16, e4, e5 and wide alone, and for mixes: wide with e4 in forward,
// wide with e4 and e5 in backward.
enum class Code : uint8_t { none, bf16, e4, e5, wide };

bool quick_norm(const FusedCall& call, Stream stream);           // batch_norm(x)
bool quick_relu_norm(const FusedCall& call, Stream stream);      // relu(batch_norm(x))
bool quick_norm_add(const FusedCall& call, Stream stream);       // add(batch_norm(x),x)
bool quick_add_norm(const FusedCall& call, Stream stream);       // add(x,batch_norm(x))
bool quick_relu_norm_add(const FusedCall& call, Stream stream);  // relu(add(batch_norm(x),x))
bool quick_relu_add_norm(const FusedCall& call, Stream stream);  // relu(add(x,batch_norm(x)))
// relu(add(batch_norm(x),batch_norm(x)))
bool quick_relu_norm_norm(const FusedCall& call, Stream stream);
bool quick_norm_grad(const FusedCall& call, Stream stream);  // batch_norm_grad(x,x)
// batch_norm_grad(relu_grad(x,x),x)
bool quick_norm_relu_grad(const FusedCall& call, Stream stream);
bool quick_relu_grad(const FusedCall& call, Stream stream);      // relu_grad(x,x)
bool quick_relu_grad_sum(const FusedCall& call, Stream stream);  // relu_grad(sum(x,x),x)
bool quick_stats(const FusedCall& call, Stream stream);          // batch_stats(x)
bool quick_norm_sums(const FusedCall& call, Stream stream);      // batch_norm_sums(x,x)
// batch_norm_sums(relu_grad(x,x),x)
bool quick_norm_relu_sums(const FusedCall& call, Stream stream);

// How these reductions are distributed. A block takes a slice of the channels, `width` groups of
// eight, and every `rows`-th run of `slots` pixels. It writes one row of partial results. The last
// block of a slice to finish combines the rows in their order.
struct SliceSpread {
  static constexpr uint32_t kThreads = 512;  // of a block
  static constexpr uint32_t kMostSlices = 32;
  static constexpr uint32_t kWidest = 16;
  uint32_t pixels, period;  // groups of a pixel
  uint32_t width, slots;    // of a block: groups side by side, pixels at once
  uint32_t slices, rows;
  // For division by multiplication: numbers up to kThreads by `width` and by `slices`.
  uint32_t over_width, over_slices;

  // False if the kernels do not support the shape.
  bool take(uint64_t elements, uint64_t channels);
  ULP_HD uint32_t by_width(uint32_t n) const { return n * over_width >> 16; }
  ULP_HD uint32_t by_slices(uint32_t n) const { return n * over_slices >> 16; }
  uint64_t partial_floats() const { return uint64_t{2} * rows * period * kGroup; }
};

// Calls `quick`; if that declines, or the call asks for it, `general`.
template <bool (*quick)(const FusedCall&, Stream), FusedLaunch general>
void quick_or(const FusedCall& call, Stream stream) {
  if (call.general || !quick(call, stream)) general(call, stream);
}

}  // namespace ulp::cuda
