// Tiles of conv_igemm.h that lie in shared memory with their borders, for convolutions without stride of 16, 32 or 64 channels that are
// multiplied as bf16: both operands come from shared memory, a tap is another place to begin at, and nothing is asked of single pixels.
//
// A tile is rows of an image, or a few whole images. Pixels are planes of eight channels, [plane][pixel][8] in bf16, rows one after the other
// with zeros between them: those to the left of a row are also those to the right of the row before, those above an image also those below
// the image before. Results are computed for all places in the rows' order, 64 at a time; those that are none are dropped. What the last 64
// read beyond the pixels reaches such results alone.
#pragma once

#include <cstdint>
#include <optional>

#include "ulp/backend/cuda/igemm/conv_igemm.h"

namespace ulp::cuda {

inline constexpr uint32_t kPiece = 64;  // results that a warpgroup computes at once
inline constexpr uint32_t kNoPixel = 0xFFFFFFFFu;
// Bytes of shared memory that a block may have if it is alone on its processor; what reports take is not in it.
inline constexpr uint32_t kPaddedShared = 226 * 1024;
// Beyond the pixels: what the last piece may read, in bytes. That is kPiece * 16 at most, beyond the last plane; compute-sanitizer takes what
// a product reads of two planes for kPiece * 32 bytes that lie together, from the first plane on.
inline constexpr uint32_t kPaddedSlack = kPiece * 32;

// A tile's first result.
struct PaddedTile {
  uint32_t image, row;
};
ULP_HD constexpr PaddedTile padded_tile(const IgemmCall& call, uint32_t tile) {
  const PaddedTiles& padded = call.tiling.padded;
  const uint32_t above = padded.bands.quotient(tile);
  return {above * padded.images, (tile - above * padded.bands.divisor) * padded.rows};
}

// Where place i of the tile's rows lies: image and row of the tile, and column. Of complete(): area and width are the places of an image and
// of a row.
struct PaddedPlace {
  uint32_t image, row, column;
};
ULP_HD constexpr PaddedPlace padded_place(const IgemmCall& call, uint32_t i) {
  const uint32_t image = call.area.quotient(i), rest = i - image * call.area.divisor;
  const uint32_t row = call.width.quotient(rest);
  return {image, row, rest - row * call.width.divisor};
}

// The input's pixel at place i; none where that is a border.
ULP_HD constexpr uint32_t padded_pixel(const IgemmCall& call, PaddedTile tile, uint32_t i) {
  const IgemmShape& shape = call.shape;
  const PaddedTiles& padded = call.tiling.padded;
  const PaddedPlace place = padded_place(call, i);
  // Those before the first are large numbers.
  const uint32_t image = tile.image + place.image,
                 row = tile.row + place.row + static_cast<uint32_t>(padded.row),
                 column = place.column + static_cast<uint32_t>(padded.column);
  if (image >= shape.images || row >= shape.in_h || column >= shape.in_w) return kNoPixel;
  return (image * shape.in_h + row) * shape.in_w + column;
}

// The result's pixel at place i; none where there is no result.
ULP_HD constexpr uint32_t padded_result(const IgemmCall& call, PaddedTile tile, uint32_t i) {
  const IgemmShape& shape = call.shape;
  const PaddedTiles& padded = call.tiling.padded;
  const PaddedPlace place = padded_place(call, i);
  const uint32_t image = tile.image + place.image, p = tile.row + place.row, q = place.column;
  if (place.image >= padded.images || place.row >= padded.rows || image >= shape.images || p >= shape.out_h ||
      q >= shape.out_w)
    return kNoPixel;
  return (image * shape.full_h + p * shape.step_h + shape.first_h) * shape.full_w + q * shape.step_w +
         shape.first_w;
}

// Of a tile's planes.
constexpr uint32_t padded_bytes(const IgemmTiling& tiling) {
  return tiling.padded.pixels * tiling.channels * 2;
}

// Fills in a tiling whose columns, images and rows are given. False where the kernel does not do it, or a tile does not fit.
bool make_padded(const IgemmShape& shape, Feed feed, uint32_t processors, IgemmTiling& tiling);
// Threads fetch the pixels, from call.in.
void start_padded(const IgemmCall& call, Feed feed, Stream stream);
// The tiling that should be quickest by a model; none where taps are few or columns many, for which the other kernel is made.
std::optional<IgemmTiling> choose_padded(const IgemmShape& shape, Feed feed, uint32_t processors);

}  // namespace ulp::cuda
