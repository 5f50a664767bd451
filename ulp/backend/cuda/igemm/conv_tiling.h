// How a convolution is cut for the kernels of conv_igemm.h: into parts, each with taps of its own, and each of them into tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/library/im2col.h"

namespace ulp::cuda {

// The extents of a forward convolution.
struct IgemmConv {
  uint32_t images = 1, h = 1, w = 1, c = 1;  // of what goes in
  uint32_t out_h = 1, out_w = 1, k = 1;      // of what comes out
  uint32_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, padding_h = 0, padding_w = 0;
};

// Few channels in: what a window holds is gathered to be the channels of a convolution of single pixels.
struct Gathered {
  Window window;
  uint32_t channels = 0;  // of the window
  uint32_t padded = 0;    // with zeros, to 16, 32 or 64
  IgemmConv conv;         // what is left to do

  // Of all rows, of codes of so many bytes.
  size_t bytes(uint32_t each) const { return size_t{conv.images} * conv.h * conv.w * padded * each; }
};
// Nothing where a window has more channels than that.
std::optional<Gathered> gathered(const IgemmConv& conv);

struct IgemmPart {
  IgemmShape shape;
  uint8_t source[kMostTaps * kMostTaps] = {};  // the weight's own tap of each of the shape's
};

IgemmPart forward_part(const IgemmConv& conv);
// The gradient of what goes in: a part for each place of a pixel in a stride, as the same taps meet pixels of the same place. Each
// of the weight's taps is in one part; some parts may have none, and results that are 0.
std::vector<IgemmPart> gradient_parts(const IgemmConv& conv);

// Fills in all but rows and columns, which are given. False where a tile does not fit.
bool make_tiling(const IgemmShape& shape, Feed feed, uint32_t processors, IgemmTiling& tiling);
// Pixels from the lowest that the rows of any tile look at to the highest; none where results are not in the order of their pixels.
std::optional<uint32_t> slab_rows(const IgemmShape& shape, uint32_t rows);
// How far before a result's own pixel its first tap may lie, in pixels: 0 or less.
int32_t lowest_offset(const IgemmShape& shape);
// The tiling that should be quickest; none where none fits.
std::optional<IgemmTiling> choose_tiling(const IgemmShape& shape, Feed feed, uint32_t processors);
// Of several parts, with so many rows and columns, if they can be such that one launch does all parts; else of each by itself. Empty
// where one does not fit.
std::vector<IgemmTiling> make_tilings(std::span<const IgemmPart> parts, Feed feed, uint32_t processors,
                                      uint32_t rows, uint32_t columns);
// The quickest of those; where parts are done by themselves, the quickest for each.
std::vector<IgemmTiling> choose_tilings(std::span<const IgemmPart> parts, Feed feed, uint32_t processors);

HalfFormat half_format(const QuickCodec& codec);
// How marked tiles of a tiling are done again, without its marks: of the same columns, and so few rows that a few of them do not take
// long. None where a tile does not fit.
struct Again {
  IgemmTiling tiling;
  uint32_t mark_shift = 0;
};
std::optional<Again> choose_again(const IgemmShape& shape, Feed feed, uint32_t processors,
                                  const IgemmTiling& marked);

// Fills in the one part and what follows `rounder` in the call from its shape and the format of the codes, but for what only fp16 has
// beside it, and where weights lie.
void complete(IgemmCall& call, Feed feed, const QuickCodec& codec);
// Makes another's part one of the call's, if one launch can do both; not where products are fp16 and tiles are marked by part, nor in what does
// those again.
bool join(IgemmCall& call, const IgemmCall& other, Feed feed);

// Where a part's weights come from and go to.
IgemmWeights::Image weight_image(const IgemmPart& part, const IgemmTiling& tiling, uint32_t* to);

}  // namespace ulp::cuda
