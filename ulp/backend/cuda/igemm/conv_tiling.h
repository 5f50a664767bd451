// How a convolution is divided for the kernels of conv_igemm.h: into parts, each with its own taps,
// and each part into tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ulp/backend/conv_extents.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/library/im2col.h"

namespace ulp::cuda {

// Im2col for inputs with few channels: a window becomes the channels of a 1x1 convolution.
struct Gathered {
  ConvExtents32 window;
  uint32_t channels = 0;  // of the window
  uint32_t padded = 0;    // channels padded with zeros to 16, 32 or 64
  ConvExtents32 conv;     // the convolution that remains

  // Bytes of all rows, for codes of `each` bytes.
  size_t bytes(uint32_t each) const { return conv.pixels() * padded * each; }
};
// None if a window has more channels than that.
std::optional<Gathered> gathered(const ConvExtents32& conv);

struct IgemmPart {
  IgemmShape shape;
  uint8_t source[kMostTaps * kMostTaps] = {};  // the weight's tap for each tap of the shape
};

IgemmPart forward_part(const ConvExtents32& conv);
// The input gradient: one part for each position of a pixel within the stride, because pixels at
// the same position meet the same taps. Each tap of the weight is in exactly one part. Some parts
// may have no taps; their results are 0.
std::vector<IgemmPart> gradient_parts(const ConvExtents32& conv);

// Completes a tiling whose rows and columns are set. False if a tile does not fit.
bool make_tiling(const IgemmShape& shape, OperandFeed feed, uint32_t processors, IgemmTiling& tiling);
// Number of pixels between the lowest and the highest that any tile of `rows` results reads. None
// if results are not in the order of their pixels.
std::optional<uint32_t> input_rows(const IgemmShape& shape, uint32_t rows);
// Offset of the first tap from a result's own pixel, in pixels: 0 or less.
int32_t lowest_offset(const IgemmShape& shape);
// The tiling expected to be fastest; none if none fits.
std::optional<IgemmTiling> choose_tiling(const IgemmShape& shape, OperandFeed feed, uint32_t processors);
// Tilings of several parts with these rows and columns. If possible they are such that one launch
// does all parts; otherwise each part has its own. Empty if one does not fit.
std::vector<IgemmTiling> make_tilings(std::span<const IgemmPart> parts, OperandFeed feed, uint32_t processors,
                                      uint32_t rows, uint32_t columns);
// The fastest of those. If parts are launched separately, the fastest for each.
std::vector<IgemmTiling> choose_tilings(std::span<const IgemmPart> parts, OperandFeed feed,
                                        uint32_t processors);

Fp16Source fp16_source(const QuickCodec& codec);
// How marked tiles are recomputed: with the same columns, and with few rows so that a few tiles do
// not take long. The tiling itself has no marks. None if a tile does not fit.
struct Recompute {
  IgemmTiling tiling;
  uint32_t mark_shift = 0;
};
std::optional<Recompute> choose_recompute(const IgemmShape& shape, OperandFeed feed, uint32_t processors,
                                          const IgemmTiling& marked);

// Sets the one part and the fields after `rounder` from the call's shape and the format of the
// codes. Does not set what only fp16 needs, nor the addresses of weights.
void complete(IgemmCall& call, OperandFeed feed, const QuickCodec& codec);
// Adds the other call's part to this call, if one launch can do both. Not for fp16 products, whose
// marks are per part, nor for the recomputation of marked tiles.
bool merge_calls(IgemmCall& call, const IgemmCall& other, OperandFeed feed);

// Where a part's weights come from and where they are packed to.
IgemmWeights::Image weight_image(const IgemmPart& part, const IgemmTiling& tiling, uint32_t* to);

}  // namespace ulp::cuda
