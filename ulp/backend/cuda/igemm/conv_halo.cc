#include "ulp/backend/cuda/igemm/conv_halo.h"

#include <algorithm>

namespace ulp::cuda {
namespace {

// Shared memory for each of two blocks on a multiprocessor.
constexpr uint32_t kHaloSharedOfTwo = 112 * 1024;

uint32_t up(uint32_t x, uint32_t granule) { return (x + granule - 1) / granule * granule; }

// The taps' offsets along an axis: the lowest, and how many from there to the highest.
struct Span {
  int32_t lowest = 0;
  uint32_t extent = 1;
};
Span span_of(const int16_t* offsets, uint32_t count) {
  const auto [low, high] = std::minmax_element(offsets, offsets + count);
  return {*low, static_cast<uint32_t>(*high - *low) + 1};
}

// Distance from the first place of a row (or image) to that of the next. All results and pixels
// have room, and a result that reads beyond its row meets zeros.
uint32_t pitch_of(uint32_t in, uint32_t out, const Span& span) {
  const auto looked_at = static_cast<int32_t>(out + span.extent - 1);
  const int32_t zeros = -span.lowest, shared = std::max(zeros, 0);
  return static_cast<uint32_t>(std::max({static_cast<int32_t>(out), looked_at - shared,
                                         std::min(zeros + static_cast<int32_t>(in), looked_at)}));
}

// Cost in cycles, from hardware rates and not from measurements. With few columns the tensor core
// waits for its left operand, 2 KB of shared memory per step. A warpgroup waits for its sums and
// then stores them while others multiply, if there are enough of them.
double cost(const IgemmShape& shape, OperandFeed feed, const IgemmTiling& tiling, uint32_t processors) {
  constexpr double kBytes = 24;  // bytes per cycle from memory, per multiprocessor
  const uint32_t columns = tiling.columns, pieces = tiling.halo.pieces,
                 tiles = tiling.row_tiles * tiling.column_tiles;
  const double steps = shape.taps() * tiling.channels / 16.0,
               elements = double{1} * pieces * kPiece * columns;
  const double piece = steps * std::max(16 + columns / 4, columns / 2), waits = 250 + 8.0 * columns;
  const double pixels = double{1} * tiling.halo.pixels * tiling.channels * feed_bytes(feed),
               weights = double{1} * tiling.block_bytes(feed) * shape.taps();
  // A tile takes as long as the slowest of its products, its instructions and its memory traffic.
  const double takes = std::max(
      {pieces * piece, elements / 16 + pixels / 50, (pixels + elements * feed_bytes(feed)) / kBytes});
  const uint32_t each = (tiles + processors - 1) / processors,
                 blocks = (tiling.grid + processors - 1) / processors,
                 warpgroups = tiling.input_stages == 2 ? 3 : 4;
  const double turns = (each + blocks - 1) / blocks * ((pieces + warpgroups - 1) / warpgroups);
  return 1500 + blocks * (weights + pixels) / kBytes + std::max(each * takes, turns * (piece + waits)) +
         300.0 * each / blocks;
}

}  // namespace

bool make_halo(const IgemmShape& shape, OperandFeed feed, uint32_t processors, IgemmTiling& tiling) {
  const uint32_t c = shape.in_c, columns = tiling.columns;
  if (feed != OperandFeed::bf16 && feed != OperandFeed::bf16_from_8) return false;
  if (c != 16 && c != 32 && c != 64) return false;
  if (columns != 16 && columns != 32 && columns != 64) return false;
  // A thread writes a quarter of the columns but at least one group of eight, or nothing.
  if (shape.out_c % std::max(columns / 4, 8u) != 0) return false;
  if (shape.stride_h != 1 || shape.stride_w != 1 || shape.taps() == 0) return false;
  HaloTiles& halo = tiling.halo;
  if (halo.images == 0 || halo.rows == 0 || halo.rows > shape.out_h) return false;
  if (halo.images > 1 && halo.rows != shape.out_h) return false;

  const Span rows = span_of(shape.row, shape.rows), across = span_of(shape.column, shape.columns);
  const uint32_t pitch = pitch_of(shape.in_w, shape.out_w, across),
                 image = halo.images == 1 ? halo.rows + rows.extent : pitch_of(shape.in_h, shape.out_h, rows);
  const uint64_t last_row = uint64_t{halo.images - 1} * image + halo.rows - 1;
  const uint64_t pixels = (last_row + rows.extent - 1) * pitch + shape.out_w + across.extent - 1;
  if (pixels * c * 2 > kHaloShared) return false;
  halo.row = rows.lowest;
  halo.column = across.lowest;
  halo.pitch = pitch;
  halo.image_pitch = image * pitch;
  halo.pixels = static_cast<uint32_t>(pixels);
  halo.pieces = static_cast<uint32_t>((last_row * pitch + shape.out_w + kPiece - 1) / kPiece);
  const uint32_t bands = (shape.out_h + halo.rows - 1) / halo.rows;
  halo.bands = Divisor::of(bands);

  tiling.rows = halo.pieces * kPiece;
  tiling.channels = c;
  tiling.chunks = 1;
  tiling.column_tiles = (shape.out_c + columns - 1) / columns;
  tiling.row_tiles = (shape.images + halo.images - 1) / halo.images * bands;
  tiling.stages = shape.taps();
  tiling.stationary = true;
  tiling.input_rows = halo.pixels;
  const size_t weights = std::max<size_t>(size_t{shape.taps()} * tiling.block_bytes(feed), kHaloSlack);
  for (const uint32_t blocks : {2u, 1u}) {
    if (blocks == 2 && columns == 64) continue;  // its sums need more registers
    const uint32_t most = std::max(processors * blocks / tiling.column_tiles, 1u),
                   each = std::min(tiling.row_tiles, most);
    tiling.grid = each * tiling.column_tiles;
    tiling.input_stages = tiling.row_tiles > each ? 2 : 1;
    tiling.shared = up(tiling.input_stages * halo_bytes(tiling), 128) + weights + 16;
    if (tiling.shared <= (blocks == 2 ? kHaloSharedOfTwo : kHaloShared)) return true;
  }
  return false;
}

std::optional<IgemmTiling> choose_halo(const IgemmShape& shape, OperandFeed feed, uint32_t processors) {
  // With few taps, pixels in shared memory are hardly reused. More columns would read them again.
  if (shape.taps() < 4 || shape.out_c > 64 || shape.step_h != 1 || shape.step_w != 1) return std::nullopt;
  const uint32_t border = span_of(shape.row, shape.rows).extent - 1;
  std::optional<IgemmTiling> best;
  double least = 0;
  const auto consider = [&](uint32_t columns, uint32_t images, uint32_t rows) {
    IgemmTiling tiling;
    tiling.columns = columns;
    tiling.halo.images = images;
    tiling.halo.rows = rows;
    if (!make_halo(shape, feed, processors, tiling)) return;
    const double takes = cost(shape, feed, tiling, processors);
    if (best && takes >= least) return;
    best = tiling;
    least = takes;
  };
  for (const uint32_t columns : {64u, 32u, 16u}) {
    // No more idle columns than working ones.
    if (columns > 16 && columns / 2 >= shape.out_c) continue;
    for (uint32_t images = std::min(shape.images, 8u); images > 1; --images)
      consider(columns, images, shape.out_h);
    for (uint32_t bands = 1, before = 0; bands <= shape.out_h; ++bands) {
      const uint32_t rows = (shape.out_h + bands - 1) / bands;
      // Border pixels are loaded by both neighbouring tiles.
      if (rows == before || (bands > 1 && rows < 2 * border)) continue;
      before = rows;
      consider(columns, 1, rows);
    }
  }
  return best;
}

}  // namespace ulp::cuda
