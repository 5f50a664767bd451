// Halo tiles for conv_igemm.h: tiles that lie in shared memory with their borders. They serve
// convolutions without stride of 16, 32 or 64 channels that are multiplied as bf16. Both wgmma
// operands come from shared memory, a tap is an offset to the start address, and no pixel is tested
// for being inside the image.
//
// A tile is some rows of an image, or a few whole images. Pixels are stored as planes of eight
// channels, [plane][pixel][8] in bf16. Rows follow one another with zeros between them: the zeros
// left of a row are also those right of the row before, and the zeros above an image are also those
// below the image before. Results are computed at all places in row order, 64 at a time; those at
// border places are dropped. The last 64 may read beyond the pixels, but that affects dropped
// results only.
#pragma once

#include <cstdint>
#include <optional>

#include "ulp/backend/cuda/igemm/conv_igemm.h"

namespace ulp::cuda {

inline constexpr uint32_t kPiece = 64;  // results that a warpgroup computes at once
inline constexpr uint32_t kNoPixel = 0xFFFFFFFFu;
// Shared memory for a block that has a multiprocessor to itself, in bytes. What reports need is not
// included.
inline constexpr uint32_t kHaloShared = 226 * 1024;
// Bytes beyond the pixels that the last 64 results may read: at most kPiece * 16, beyond the last
// plane. The constant is larger because compute-sanitizer takes a product's reads of two planes for
// kPiece * 32 contiguous bytes from the first plane on.
inline constexpr uint32_t kHaloSlack = kPiece * 32;

// Image and row of a tile's first result.
struct HaloTile {
  uint32_t image, row;
};
ULP_HD constexpr HaloTile halo_tile(const IgemmCall& call, uint32_t tile) {
  const HaloTiles& halo = call.tiling.halo;
  const uint32_t above = halo.bands.quotient(tile);
  return {above * halo.images, (tile - above * halo.bands.divisor) * halo.rows};
}

// Image and row within the tile, and column, of place i. complete() sets `area` and `width` to the
// places of an image and of a row.
struct HaloPlace {
  uint32_t image, row, column;
};
ULP_HD constexpr HaloPlace halo_place(const IgemmCall& call, uint32_t i) {
  const uint32_t image = call.area.quotient(i), rest = i - image * call.area.divisor;
  const uint32_t row = call.width.quotient(rest);
  return {image, row, rest - row * call.width.divisor};
}

// The input pixel at place i, or kNoPixel on a border.
ULP_HD constexpr uint32_t halo_pixel(const IgemmCall& call, HaloTile tile, uint32_t i) {
  const IgemmShape& shape = call.shape;
  const HaloTiles& halo = call.tiling.halo;
  const HaloPlace place = halo_place(call, i);
  // Unsigned: positions before the first become large numbers.
  const uint32_t image = tile.image + place.image,
                 row = tile.row + place.row + static_cast<uint32_t>(halo.row),
                 column = place.column + static_cast<uint32_t>(halo.column);
  if (image >= shape.images || row >= shape.in_h || column >= shape.in_w) return kNoPixel;
  return (image * shape.in_h + row) * shape.in_w + column;
}

// The output pixel at place i, or kNoPixel where there is no result.
ULP_HD constexpr uint32_t halo_result(const IgemmCall& call, HaloTile tile, uint32_t i) {
  const IgemmShape& shape = call.shape;
  const HaloTiles& halo = call.tiling.halo;
  const HaloPlace place = halo_place(call, i);
  const uint32_t image = tile.image + place.image, p = tile.row + place.row, q = place.column;
  if (place.image >= halo.images || place.row >= halo.rows || image >= shape.images || p >= shape.out_h ||
      q >= shape.out_w)
    return kNoPixel;
  return (image * shape.full_h + p * shape.step_h + shape.first_h) * shape.full_w + q * shape.step_w +
         shape.first_w;
}

// Bytes of a tile's planes.
constexpr uint32_t halo_bytes(const IgemmTiling& tiling) { return tiling.halo.pixels * tiling.channels * 2; }

// Completes a tiling whose columns, images and rows are set. False if the kernel does not support
// it or a tile does not fit.
bool make_halo(const IgemmShape& shape, OperandFeed feed, uint32_t processors, IgemmTiling& tiling);
// Threads load the pixels themselves, from call.in.
void start_halo(const IgemmCall& call, OperandFeed feed, Stream stream);
// The tiling that a cost model finds fastest. None if there are few taps or many columns: the
// pipelined kernel is better there.
std::optional<IgemmTiling> choose_halo(const IgemmShape& shape, OperandFeed feed, uint32_t processors);

}  // namespace ulp::cuda
