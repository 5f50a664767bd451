// Gradients of a convolution's weights from codes (wgrad): for each tap and pair of channels, the
// sum over all pixels of input times output gradient. Operands are read as stored, as in
// conv_igemm.h. Split-K: each block sums a piece of the batch into fp32 workspace; the pieces are
// added in a fixed order and encoded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

inline constexpr uint32_t kGradPixels = 64;  // pixels of a tile
inline constexpr uint32_t kGradTaps = 3;     // along an axis, at most
// Buffers for a tile's gradients in the tensor core's layout.
inline constexpr uint32_t kGradCopies = 4;

// True if a block has so few sums that half a multiprocessor's registers and shared memory suffice.
// Blocks of other steps can then run on the same multiprocessor, where this block alone would
// mostly wait.
constexpr bool grad_shares(uint32_t inputs, uint32_t outputs, bool tf32) {
  return !tf32 && outputs <= 32 && inputs * outputs <= 1024;
}

struct GradTiling {
  uint32_t inputs = 64;   // input channels of a block: 16, 32 or 64
  uint32_t outputs = 64;  // output channels of a block: 16, 32 or 64
  uint32_t input_tiles = 1, output_tiles = 1;
  uint32_t tiles = 1;   // of pixels
  uint32_t pieces = 1;  // pieces of the batch (split-K), `each` tiles per piece
  uint32_t each = 1;
  uint32_t input_rows = 0;  // pixels of the input stage, a multiple of 8
  uint32_t stages = 4;
  size_t shared = 0;

  constexpr uint32_t grid() const { return input_tiles * output_tiles * pieces; }
};

struct GradCall {
  IgemmShape shape;  // of the forward convolution: its results are the output's pixels
  GradTiling tiling;
  float* parts = nullptr;  // (pieces, out_c, taps, in_c)
  bool tf32 = false;       // multiplied as tf32 instead of bf16
  // How codes of the input and of the output gradient become operands. 8-bit codes are shifted to
  // bf16's position, two at a time. 16-bit codes for tf32 are shifted down from the upper half of a
  // register to fp32's position. For bf16 products, 16-bit codes are bf16 already.
  uint32_t in_bytes = 1, out_bytes = 1;
  uint32_t in_shift = 0, in_mask = 0, out_shift = 0, out_mask = 0;
  // Powers of two that the shifted codes lack. For bf16: both are applied to gradients, one after
  // the other, as two bf16 each. For tf32: of inputs and of gradients; `lift` for 8-bit codes, the
  // floats for 16-bit ones.
  uint32_t lift[2] = {};
  float in_factor = 1, out_factor = 1;
  float factor = 1;  // applied to sums
  Divisor area, width;
  int32_t lowest = 0;
};

// None if it does not fit.
std::optional<GradTiling> make_grad_tiling(const IgemmShape& shape, uint32_t in_bytes, uint32_t out_bytes,
                                           bool tf32, uint32_t processors);
// Sets the fields after the code widths, from the codecs. For bf16 products the codec of a bf16
// operand is not used.
void complete(GradCall& call, const QuickCodec& in, const QuickCodec& out);

void run_grad(const GradCall& call, const uint8_t* in, const uint8_t* grad, Stream stream);

// Split-K reduction: adds `pieces` arrays of `elements` and writes the sum.
struct SplitKSums {
  const float* parts = nullptr;
  uint32_t pieces = 1;
  uint64_t elements = 0;
  WriteView out;
  const StepState* state = nullptr;
  Rounder rounder = {};  // set by the launch
};
void add_split_k(SplitKSums sums, Stream stream);

}  // namespace ulp::cuda
