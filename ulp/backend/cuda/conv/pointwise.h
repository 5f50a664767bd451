// 1x1 convolutions whose pixels need not be multiples of 16 bytes; neither the copy engine
// (conv_igemm.h) nor a library reads such pixels in place. Forward, gradients of inputs and
// gradients of weights, for an even number of channels. Operands are bf16, or 8-bit codes without
// specials that are decoded on the way into the tensor core. The epilogue encodes results.
//
// A tile of pixels is one contiguous range of memory whatever the channels are, and begins at a
// multiple of 16 bytes. So tiles are copied to shared memory as stored, several pipeline stages
// ahead, and results leave the same way: memory is read once and written once. The order of
// summation is fixed: it depends on shapes and the number of multiprocessors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

inline constexpr uint32_t kPointMost = 512;     // channels
inline constexpr uint32_t kPointColumns = 64;   // output channels that a warp sums at once
inline constexpr uint32_t kPointStep = 16;      // channels that a tensor core multiplies at once
inline constexpr uint32_t kPointBlock = 512;    // words of weights for one step and these columns
inline constexpr uint32_t kPointThreads = 512;  // of a block, at most
// Bytes that a block may have, beyond what reports take.
inline constexpr size_t kPointShared = 226 << 10;

// How 8-bit codes become bf16: two sign-extended halves of a register are shifted to bf16's
// position, and a power of two is still missing. Unused for bf16.
struct PointCodes {
  uint32_t bytes = 2;
  uint32_t shift = 0, mask = 0;
  int power = 0;      // the missing power of two
  uint32_t lift = 0;  // the same as two bf16
};
PointCodes point_codes(uint32_t bytes, const QuickCodec& codec);

struct PointTiling {
  uint32_t pixels = 128;  // of a tile: 128, 64 or 32; a warp has 32 of them
  uint32_t tiles = 1;
  uint32_t chunks = 1, steps = 1;  // of columns; of channels
  uint32_t groups = 1;             // of warps, each with its own columns
  uint32_t stages = 2;             // tiles in shared memory
  bool stationary = true;          // weights are in shared memory too
  uint32_t grid = 1;
  size_t shared = 0;

  constexpr uint32_t threads() const { return pixels * groups; }
  constexpr uint32_t image_words() const { return chunks * steps * kPointBlock; }
};
// With `tile` pixels per tile, or with the best number. None if a tile does not fit.
std::optional<PointTiling> make_point_tiling(uint32_t pixels, uint32_t in_c, uint32_t out_c,
                                             uint32_t in_bytes, uint32_t out_bytes, uint32_t processors,
                                             uint32_t tile = 0);

// Weights packed as the tensor core reads them: blocks of (columns, step), in which a lane has the
// words of two times eight columns together. Elements without a weight are 0. Every stored weight
// is read once, and its rounding reported.
struct PointWeights {
  ReadView view;
  const StepState* state = nullptr;
  uint32_t in_c = 2, out_c = 2;
  bool transposed = false;  // stored as (in_c, out_c), else as (out_c, in_c)
  float factor = 1;         // a power of two that the other operand lacks
  uint32_t chunks = 1, steps = 1;
  uint32_t* to = nullptr;
};
void prepare_points(const PointWeights& weights, Stream stream);

struct PointCall {
  const uint8_t* in = nullptr;      // aligned to 16 bytes, as is the result
  const uint32_t* image = nullptr;  // packed weights
  uint32_t pixels = 1, in_c = 2, out_c = 2;
  PointCodes codes;
  PointTiling tiling;
  float factor = 1;  // applied to sums: a power of two that weights had no range for
  WriteView out;
  Rounder rounder;
};
void run_points(const PointCall& call, Stream stream);

inline constexpr uint32_t kPointGradThreads = 256;

struct PointGradTiling {
  uint32_t pixels = 128;  // of a tile
  uint32_t tiles = 1;     // of pixels
  // Warps of a block along the channels of the gradient and of the input, 64 channels each.
  uint32_t warps_out = 1, warps_in = 1;
  // This many warps share the pixels of a tile for each such pair.
  uint32_t slices = 8;
  uint32_t blocks_out = 1, blocks_in = 1;  // blocks that all channels need
  uint32_t pieces = 1, each = 1;           // pieces of the batch (split-K), `each` tiles per piece
  uint32_t stages = 3;
  size_t shared = 0;

  constexpr uint32_t grid() const { return blocks_out * blocks_in * pieces; }
};
PointGradTiling make_point_grad_tiling(uint32_t pixels, uint32_t in_c, uint32_t out_c, uint32_t in_bytes,
                                       uint32_t out_bytes, uint32_t processors);

struct PointGradCall {
  const uint8_t *in = nullptr, *grad = nullptr;  // aligned to 16 bytes
  uint32_t pixels = 1, in_c = 2, out_c = 2;
  PointCodes in_codes, grad_codes;
  PointGradTiling tiling;
  float* parts = nullptr;  // (pieces, out_c, in_c)
};
void run_point_grad(const PointGradCall& call, Stream stream);

}  // namespace ulp::cuda
