// Batch norms and activations in the formats that models train in: bf16, and 8 bits with 4 or 5 bits of exponent, which the
// processor converts by itself, and other formats of 16 bits. The bits, sums and range events of the general kernels of fused_elementwise.h, in fewer instructions
// and with one launch for a reduction.
//
// Each function takes the call of its pattern and answers true, or, where a format or a shape is not its own, does
// nothing and answers false: then the general kernels must.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/base/device.h"

namespace ulp::cuda {

// The type of the processor that a format's codes are read as; `none`: there is no such.
//   e4, e5: codes of 8 bits with so many bits of exponent. Those of e4 are the type's but for a power of two. Codes that mean something else to the
//   processor are the topmost ones; groups in which such a code appears go a longer way.
//   wide: codes of 16 bits that all are numbers, of fp32's range less some binades at its ends: fp(6,9,0) and the like. The processor
//   does not have them; how they are moved and rounded is told by a few numbers of the call.
// Kernels are compiled for bf16, e4, e5 and wide alone, and for mixes of wide with e4 in forward, with e4 and e5 in backward.
enum class Code : uint8_t { none, bf16, e4, e5, wide };

bool quick_norm(const FusedCall& call, Stream stream);            // batch_norm(x)
bool quick_relu_norm(const FusedCall& call, Stream stream);       // relu(batch_norm(x))
bool quick_norm_add(const FusedCall& call, Stream stream);        // add(batch_norm(x),x)
bool quick_add_norm(const FusedCall& call, Stream stream);        // add(x,batch_norm(x))
bool quick_relu_norm_add(const FusedCall& call, Stream stream);   // relu(add(batch_norm(x),x))
bool quick_relu_add_norm(const FusedCall& call, Stream stream);   // relu(add(x,batch_norm(x)))
bool quick_relu_norm_norm(const FusedCall& call, Stream stream);  // relu(add(batch_norm(x),batch_norm(x)))
bool quick_norm_grad(const FusedCall& call, Stream stream);       // batch_norm_grad(x,x)
bool quick_norm_relu_grad(const FusedCall& call, Stream stream);  // batch_norm_grad(relu_grad(x,x),x)
bool quick_relu_grad(const FusedCall& call, Stream stream);       // relu_grad(x,x)
bool quick_relu_grad_sum(const FusedCall& call, Stream stream);   // relu_grad(sum(x,x),x)
bool quick_stats(const FusedCall& call, Stream stream);           // batch_stats(x)
bool quick_norm_sums(const FusedCall& call, Stream stream);       // batch_norm_sums(x,x)
bool quick_norm_relu_sums(const FusedCall& call, Stream stream);  // batch_norm_sums(relu_grad(x,x),x)

// How a reduction of these is spread. Blocks take a slice of the channels, `width` groups of them, and every so manieth
// pixel; each gives a row of partial results, and the last block of a slice to come to its end joins the rows in their order.
struct SliceCourse {
  static constexpr uint32_t kThreads = 512;  // of a block
  static constexpr uint32_t kMostSlices = 32;
  static constexpr uint32_t kWidest = 16;
  uint32_t pixels, period;  // groups of a pixel
  uint32_t width, slots;    // of a block: groups side by side, pixels at once
  uint32_t slices, rows;
  // For quotients without a division: of numbers up to kThreads by `width` and by `slices`.
  uint32_t over_width, over_slices;

  // False where the kernels cannot.
  bool take(uint64_t elements, uint64_t channels);
  ULP_HD uint32_t by_width(uint32_t n) const { return n * over_width >> 16; }
  ULP_HD uint32_t by_slices(uint32_t n) const { return n * over_slices >> 16; }
  uint64_t partial_floats() const { return uint64_t{2} * rows * period * kGroup; }
};

// The call by the one way or else by the other.
template <bool (*quick)(const FusedCall&, Stream), FusedLaunch general>
void quick_or(const FusedCall& call, Stream stream) {
  if (call.general || !quick(call, stream)) general(call, stream);
}

}  // namespace ulp::cuda
