// Convolutions of tensors stored in fp32 and multiplied in fp32, on the CUDA cores (SIMT): forward,
// gradients of inputs and gradients of weights. Products and sums are fp32, with fused
// multiply-add. Nothing is decoded or copied.
//
// Each operator is an implicit GEMM. A block has a tile of the result, 128 rows by 32, 64 or 128
// columns; a thread has 8 by 8 (or 4) sums of it in registers. Chunks of the operands, eight deep,
// go from global to shared memory while the previous chunk is multiplied.
//
//                       rows                  columns             depth
//   forward             output pixels         output channels     taps, input channels
//   gradient of inputs  input pixels          input channels      taps, output channels
//   gradient of weights taps, input channels  output channels     output pixels
//
// The input gradient of a strided convolution is done in parts, as in conv_tiling.h: the pixels of
// a part meet the same taps, and no other taps are visited; pixels that no tap meets become 0. If
// there are too few tiles for all multiprocessors the depth is split (split-K); the pieces' sums go
// to workspace and are added in order. The order of summation is fixed: it depends on shapes and
// the number of multiprocessors. Taps outside of an image are multiplied as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

inline constexpr uint32_t kSimtRows = 128;  // of a tile
inline constexpr uint32_t kSimtDepth = 8;   // of a chunk in shared memory
inline constexpr uint32_t kSimtQuad = 4;    // channels that are read and written at once

// Tiles, by their columns.
enum class ConvSimtTile : uint8_t { slim = 32, narrow = 64, wide = 128 };
constexpr uint32_t tile_columns(ConvSimtTile tile) { return static_cast<uint32_t>(tile); }

struct ConvSimtTiling {
  ConvSimtTile tile = ConvSimtTile::wide;
  uint32_t pieces = 1;  // of the depth (split-K)
};

// The results of a part, and the taps that they meet.
struct ConvSimtPart {
  IgemmShape shape;
  uint8_t source[kMostTaps * kMostTaps] = {};  // the weight's tap for each tap of the part
  Divisor area, width;                         // of a result's image
  // Set by complete():
  uint32_t row_tiles = 1;
  uint32_t tap_chunks = 1, chunks = 0;  // of a tap; of all
  uint32_t each = 1;                    // chunks of a piece
  uint32_t first_block = 0;
};

// A forward convolution or an input gradient. All tensors must have fewer than 2^31 elements, and
// channels must be multiples of kSimtQuad.
struct ConvSimtCall {
  const float* images = nullptr;  // the input; for a gradient, the output's gradient
  const float* weight = nullptr;
  float* out = nullptr;  // the result, or the sums of its `pieces`, one after the other
  bool gradient = false;
  ConvSimtTiling tiling;
  uint32_t weight_taps = 1;
  uint32_t in_h = 1, in_w = 1, in_c = 4, out_c = 4;  // of all parts
  uint32_t elements = 0;                             // of the result
  uint32_t column_tiles = 1, blocks = 1;             // set by complete()
  uint32_t parts = 1;
  ConvSimtPart part[kMostParts];
};

// A gradient of weights.
struct ConvSimtGrad {
  const float* images = nullptr;  // the input
  const float* grad = nullptr;    // of the output
  float* out = nullptr;           // (pieces, output channels, taps, input channels)
  IgemmShape shape;               // of the forward convolution: its results are the output pixels
  ConvSimtTiling tiling;
  Divisor area, width;
  // Set by complete():
  uint32_t row_tiles = 1, column_tiles = 1;
  uint32_t each = 1;  // pixels of a piece
  // Advance by one chunk: images, rows and columns.
  uint32_t step_image = 0, step_row = 0, step_column = 0;

  constexpr uint32_t pixels() const { return static_cast<uint32_t>(shape.results()); }
  constexpr uint32_t elements() const { return shape.out_c * shape.taps() * shape.in_c; }
};

// The parts of a convolution (conv_tiling.h), without the fields that depend on a tiling.
struct IgemmPart;
ConvSimtCall conv_simt_call(std::span<const IgemmPart> parts, uint32_t weight_taps, bool gradient);
ConvSimtGrad conv_simt_wgrad(const IgemmPart& forward);

// The tiling expected to be fastest on this many multiprocessors, with pieces that fit `workspace`
// bytes; of all tiles, or with the given one.
ConvSimtTiling choose_tiling(const ConvSimtCall& call, uint32_t processors, size_t workspace,
                             std::optional<ConvSimtTile> only = {});
ConvSimtTiling choose_tiling(const ConvSimtGrad& call, uint32_t processors, size_t workspace,
                             std::optional<ConvSimtTile> only = {});
// Sets the fields that depend on the tiling; may reduce the number of pieces.
void complete(ConvSimtCall& call);
void complete(ConvSimtGrad& call);

// Operands and results must be aligned to 16 bytes.
void run_conv_simt(const ConvSimtCall& call, Stream stream);
void run_conv_simt_wgrad(const ConvSimtGrad& call, Stream stream);

}  // namespace ulp::cuda
