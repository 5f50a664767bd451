// Convolutions of tensors that are stored in fp32 and multiplied in it, on the GPU's plain cores: forward ones, gradients of inputs
// and gradients of weights. Products and sums are fp32, each product fused with its addition; nothing is decoded or copied.
//
// Each is a product of matrices that are never made: a block has a tile of the result, 128 rows by 32, 64 or 128 columns, and threads
// 8 by 8 (or 4) sums of it, in registers. Pieces of the operands, eight deep, go from where they lie to shared memory while the piece
// before is multiplied.
//
//                       rows                  columns             depth
//   forward             pixels that come out  channels out        taps, channels in
//   gradient of inputs  pixels that go in     channels in         taps, channels out
//   gradient of weights taps, channels in     channels out        pixels that come out
//
// A gradient of inputs of a convolution with a stride is done in parts, as in conv_tiling.h: pixels of a part meet the same taps, and no others
// are looked at; pixels that no tap meets become 0. Where tiles are too few for all processors the depth is cut in pieces, whose sums
// go to workspace and are added in order. The same elements are always added in the same order, which depends on shapes and the
// number of processors. Taps outside of an image are multiplied as zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

inline constexpr uint32_t kSimtRows = 128;  // of a tile
inline constexpr uint32_t kSimtDepth = 8;   // of a piece in shared memory: a chunk
inline constexpr uint32_t kSimtQuad = 4;    // channels that are read and written at once

// By its columns.
enum class ConvSimtTile : uint8_t { slim = 32, narrow = 64, wide = 128 };
constexpr uint32_t tile_columns(ConvSimtTile tile) { return static_cast<uint32_t>(tile); }

struct ConvSimtTiling {
  ConvSimtTile tile = ConvSimtTile::wide;
  uint32_t pieces = 1;  // of the depth
};

// Results of a part, and the taps that they meet.
struct ConvSimtPart {
  IgemmShape shape;
  uint8_t source[kMostTaps * kMostTaps] = {};  // the weight's own tap of each
  Divisor area, width;                         // of a result's image
  // Filled in by complete():
  uint32_t row_tiles = 1;
  uint32_t tap_chunks = 1, chunks = 0;  // of a tap; of all
  uint32_t each = 1;                    // chunks of a piece
  uint32_t first_block = 0;
};

// A forward convolution, or a gradient of inputs. All tensors have fewer than 2^31 elements, channels are multiples of kSimtQuad.
struct ConvSimtCall {
  const float* images = nullptr;  // what goes in; of a gradient, the gradient of what comes out
  const float* weight = nullptr;
  float* out = nullptr;  // the result, or sums of `pieces` of it, one after the other
  bool gradient = false;
  ConvSimtTiling tiling;
  uint32_t weight_taps = 1;
  uint32_t in_h = 1, in_w = 1, in_c = 4, out_c = 4;  // of all parts
  uint32_t elements = 0;                             // of the result
  uint32_t column_tiles = 1, blocks = 1;             // filled in by complete()
  uint32_t parts = 1;
  ConvSimtPart part[kMostParts];
};

// A gradient of weights.
struct ConvSimtGrad {
  const float* images = nullptr;  // what goes in
  const float* grad = nullptr;    // of what comes out
  float* out = nullptr;           // (pieces, channels out, taps, channels in)
  IgemmShape shape;               // of the forward convolution: pixels that come out are its results
  ConvSimtTiling tiling;
  Divisor area, width;
  // Filled in by complete():
  uint32_t row_tiles = 1, column_tiles = 1;
  uint32_t each = 1;  // pixels of a piece
  // A chunk further on: images, rows and columns.
  uint32_t step_image = 0, step_row = 0, step_column = 0;

  constexpr uint32_t pixels() const { return static_cast<uint32_t>(shape.results()); }
  constexpr uint32_t elements() const { return shape.out_c * shape.taps() * shape.in_c; }
};

// The parts of a convolution (conv_tiling.h), without what follows its tiling.
struct IgemmPart;
ConvSimtCall conv_simt_call(std::span<const IgemmPart> parts, uint32_t weight_taps, bool gradient);
ConvSimtGrad conv_simt_wgrad(const IgemmPart& forward);

// The tiling that should be quickest on so many processors, whose pieces take no more than so many bytes; of all tiles, or with one that
// is given.
ConvSimtTiling choose_tiling(const ConvSimtCall& call, uint32_t processors, size_t workspace,
                             std::optional<ConvSimtTile> only = {});
ConvSimtTiling choose_tiling(const ConvSimtGrad& call, uint32_t processors, size_t workspace,
                             std::optional<ConvSimtTile> only = {});
// Fills in what follows the tiling; there may be fewer pieces after it.
void complete(ConvSimtCall& call);
void complete(ConvSimtGrad& call);

// Operands and results are aligned to 16 bytes.
void run_conv_simt(const ConvSimtCall& call, Stream stream);
void run_conv_simt_wgrad(const ConvSimtGrad& call, Stream stream);

}  // namespace ulp::cuda
