// Gradients of a convolution's weights from codes: for each tap and pair of channels the sum over all pixels of input times output
// gradient. As in conv_igemm.h operands are read where they lie; sums of pieces of the batch go to workspace in fp32, are added in
// a fixed order and encoded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

inline constexpr uint32_t kGradPixels = 64;  // of a tile
inline constexpr uint32_t kGradTaps = 3;     // along an axis, at most
inline constexpr uint32_t kGradCopies = 4;   // of a tile's gradients as the tensor core reads them

// Whether a block's sums are so few that half a processor's registers and shared memory are enough for it, so that other steps' blocks can run
// beside it there: alone a block mostly waits.
constexpr bool grad_shares(uint32_t inputs, uint32_t outputs, bool tf32) {
  return !tf32 && outputs <= 32 && inputs * outputs <= 1024;
}

struct GradTiling {
  uint32_t inputs = 64;   // channels of the input that a block sums for: 16, 32 or 64
  uint32_t outputs = 64;  // and of the output: 16, 32 or 64
  uint32_t input_tiles = 1, output_tiles = 1;
  uint32_t tiles = 1;   // of pixels
  uint32_t pieces = 1;  // of the batch, of `each` tiles
  uint32_t each = 1;
  uint32_t slab_rows = 0;  // of the input, a multiple of 8
  uint32_t stages = 4;
  size_t shared = 0;

  constexpr uint32_t grid() const { return input_tiles * output_tiles * pieces; }
};

struct GradCall {
  IgemmShape shape;  // of the forward convolution: pixels of the output are its results
  GradTiling tiling;
  float* parts = nullptr;  // (pieces, out_c, taps, in_c)
  bool tf32 = false;       // multiplied as tf32, not as bf16
  // Codes of the input and of the output's gradient: those of 8 bits go to bf16's place, two at a time, those of 16 bits, if they are to
  // be tf32, from the upper half of a register down to fp32's place. As bf16 is multiplied, 16-bit ones are bf16 already.
  uint32_t in_bytes = 1, out_bytes = 1;
  uint32_t in_shift = 0, in_mask = 0, out_shift = 0, out_mask = 0;
  // Powers of two that codes lack there. For bf16: both of gradients, one after the other, two bf16 each; for tf32: of inputs and of
  // gradients, of 8-bit codes in `lift`, of 16-bit ones the others.
  uint32_t lift[2] = {};
  float in_factor = 1, out_factor = 1;
  float factor = 1;  // of sums
  Divisor area, width;
  int32_t lowest = 0;
};

// Nothing where it does not fit.
std::optional<GradTiling> make_grad_tiling(const IgemmShape& shape, uint32_t in_bytes, uint32_t out_bytes,
                                           bool tf32, uint32_t processors);
// Fills in what follows the widths of codes, from their codecs; where bf16 is multiplied that of bf16 does not matter.
void complete(GradCall& call, const QuickCodec& in, const QuickCodec& out);

void run_grad(const GradCall& call, const uint8_t* in, const uint8_t* grad, Stream stream);

// Adds `pieces` arrays of `elements` and writes the sum.
struct PartSums {
  const float* parts = nullptr;
  uint32_t pieces = 1;
  uint64_t elements = 0;
  WriteView out;
  const StepState* state = nullptr;
  Rounder rounder = {};  // filled in by the launch
};
void add_parts(PartSums sums, Stream stream);

}  // namespace ulp::cuda
