// Convolutions whose operands are read as codes and whose results are encoded where they are summed: forward ones and gradients of
// inputs. Nothing is decoded to memory, nothing leaves in fp32, and no workspace grows with the batch but what is gathered where channels are few, and
// in fp16 a byte for each tile.
//
// A result's element is a sum over taps and channels: images' pixels, moved by a tap, times a matrix of the tap. Pixels of a tile of
// results are neighbours in memory, so that one piece of it, a slab, serves all taps; it is copied to shared memory, each thread
// decodes its part into registers, from which tensor cores take it. Weights are decoded once, into blocks that lie as the tensor
// cores read them. The same elements are always added in the same order, which depends on shapes and the number of processors,
// in fp16 also on which numbers lie outside of its window.
//
// Products are exact: operands are of a type that holds all their numbers; or fp16, where a few numbers of a tile that are too small for
// it are multiplied by themselves, in fp32. Tiles with more, or others, that it does not hold are left out and done in tf32 by kernels
// that are started after it, and return at once where there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/backend/cuda/igemm/fp16_window.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// How codes become operands of a tensor core.
enum class Feed : uint8_t {
  bf16_from_8,   // codes of 8 bits without specials, multiplied as bf16
  bf16,          // bf16 as it lies
  tf32_from_8,   // codes of 8 and
  tf32_from_16,  // of 16 bits without specials, multiplied as tf32
  half_from_8,   // the same, multiplied as fp16 as far as
  half_from_16,  // that has their exponents (fp16_window.h): tiles with other numbers, but for a few, are for tf32 to do
};
// What operands are in the tensor core.
enum class MmaType : uint8_t { bf16, tf32, fp16 };
constexpr MmaType feed_product(Feed feed) {
  if (feed == Feed::tf32_from_8 || feed == Feed::tf32_from_16) return MmaType::tf32;
  return feed == Feed::half_from_8 || feed == Feed::half_from_16 ? MmaType::fp16 : MmaType::bf16;
}
constexpr bool feeds_tf32(Feed feed) { return feed_product(feed) == MmaType::tf32; }
constexpr bool feeds_half(Feed feed) { return feed_product(feed) == MmaType::fp16; }
constexpr uint32_t feed_bytes(Feed feed) {
  return feed == Feed::bf16_from_8 || feed == Feed::tf32_from_8 || feed == Feed::half_from_8 ? 1 : 2;
}
// Whether the copy engine turns pieces of rows of so many channels.
constexpr bool swizzles_rows(Feed feed, uint32_t channels) { return channels * feed_bytes(feed) == 128; }

// Of 16 bits: how much a tile done in fp16 may have of numbers below its window. Pieces of eight channels of a slab go round 64
// threads; how many threads have such numbers in theirs is counted, and the counts of all chunks are added up.
// Less than 16: so many have such numbers where one channel of 32 has nothing else.
inline constexpr uint32_t kMostOutside = 12;

inline constexpr uint32_t kMostTaps = 5;   // along an axis
inline constexpr uint32_t kMostParts = 9;  // of a gradient

// Tap (i, j) adds pixel (p * stride_h + row[i], q * stride_w + column[j]) times its matrix to result (p, q). Results are those at
// (p * step_h + first_h, q * step_w + first_w), p < out_h, q < out_w, of images of full_h by full_w.
struct IgemmShape {
  uint32_t images = 1, in_h = 1, in_w = 1, in_c = 1;
  uint32_t out_h = 1, out_w = 1, out_c = 1;
  uint32_t stride_h = 1, stride_w = 1;
  uint32_t full_h = 1, full_w = 1, step_h = 1, step_w = 1, first_h = 0, first_w = 0;
  uint32_t rows = 0, columns = 0;  // taps
  int16_t row[kMostTaps] = {}, column[kMostTaps] = {};

  ULP_HD constexpr uint32_t taps() const { return rows * columns; }
  ULP_HD constexpr uint64_t results() const { return uint64_t{images} * out_h * out_w; }
};

// n / divisor for n below 2^31.
struct Divisor {
  uint32_t divisor = 1, factor = 0x80000000u, shift = 31;

  static constexpr Divisor of(uint32_t divisor) {
    uint32_t bits = 0;
    while ((uint64_t{1} << bits) < divisor) ++bits;
    // The factor is 2^(31 + bits) / divisor, rounded up: less than 2^32, and off by so little that no quotient changes.
    return {divisor, static_cast<uint32_t>(((uint64_t{1} << (31 + bits)) + divisor - 1) / divisor),
            31 + bits};
  }
  ULP_HD constexpr uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * factor) >> shift);
  }
};

// Tiles that lie in shared memory with their borders (conv_halo.h).
struct PaddedTiles {
  uint32_t images = 1, rows = 1;        // of a tile's results: whole images, or rows of one
  uint32_t pitch = 0, image_pitch = 0;  // places from a row to the next, and from an image
  uint32_t pixels = 0;                  // in shared memory
  uint32_t pieces = 0;                  // of 64 results; 0: tiles are none of these
  int32_t row = 0, column = 0;          // the first of the pixels that the first result looks at
  Divisor bands;                        // tiles of an image
};

// How the work is cut.
struct IgemmTiling {
  uint32_t rows = 128;               // results of a tile, 128 or 256; padded: places, with borders
  uint32_t columns = 64;             // output channels of a tile: 32, 64 or 128; padded 16, 32 or 64
  uint32_t channels = 64;            // input channels of a slab: 16, 32 or 64
  uint32_t grid = 1;                 // blocks
  uint32_t stages = 4;               // blocks of weights in shared memory
  bool resident = false;             // which then are all there are, and stay
  uint32_t slabs = 2;                // in shared memory
  uint32_t slab_rows = 0;            // pixels of a slab
  uint32_t boxes = 1, box_rows = 0;  // copies that make one
  uint32_t column_tiles = 1, row_tiles = 1, chunks = 1;
  size_t shared = 0;  // bytes
  PaddedTiles padded;

  constexpr bool is_padded() const { return padded.pieces != 0; }
  constexpr uint32_t block_bytes(Feed feed) const { return columns * channels * (feeds_tf32(feed) ? 4 : 2); }
  // Of all weights as the kernel reads them.
  constexpr size_t image_bytes(Feed feed, uint32_t taps) const {
    return size_t{column_tiles} * chunks * taps * block_bytes(feed);
  }
};

// Where element (channel of the result, channel of the input) of a tile's block lies in it, in elements. Threads hold neighbouring
// channels of either side: which of the tensor core's columns and steps they are is for the weights to follow. Natural: pixels come
// from shared memory, their channels in order.
ULP_HD constexpr uint32_t block_position(uint32_t columns, uint32_t channels, bool tf32, uint32_t n,
                                         uint32_t c, bool natural = false) {
  const uint32_t each = channels / 4, piece = tf32 ? 4 : 8, pair = tf32 ? 2 : 4;
  // Input channel: thread, step of the tensor core, place in the step.
  const uint32_t thread = c / each, step = c % each / pair, j = c % pair;
  const uint32_t k = tf32 ? thread + 4 * j : 2 * thread + (j & 1) + 8 * (j >> 1);
  // Result's channel: thread t holds columns 8i + 2t and the next of each i.
  const uint32_t own = columns / 4, t = n / own, i = n % own;
  const uint32_t column = 8 * (i / 2) + 2 * t + i % 2;
  // Pieces of 16 bytes; eight columns of a piece lie together.
  const uint32_t row = natural ? c / piece : 2 * step + k / piece;
  return ((row * (columns / 8) + column / 8) * 8 + column % 8) * piece + (natural ? c : k) % piece;
}

// Weights as blocks, for the parts of a convolution all at once. Elements that no weight has are 0.
struct IgemmWeights {
  struct Image {
    uint32_t* to = nullptr;
    uint32_t blocks = 0;                        // (tile of columns, chunk, tap)
    uint32_t first_block = 0;                   // of the launch; filled in by it
    uint8_t column_bits = 5, channel_bits = 4;  // of a block: powers of two
    bool natural = false;                       // the input's channels in order; not of tf32
    Divisor taps, chunks;
    uint8_t source[kMostTaps * kMostTaps] = {};  // the stored weight's own tap of each
  };

  ReadView view;
  const StepState* state = nullptr;
  uint32_t out_c = 1, in_c = 1;  // as the kernel sees them, multiples of kGroup
  uint32_t weight_taps = 1;      // of the stored weight
  bool transposed = false;       // stored as (in_c, taps, out_c), else as (out_c, taps, in_c)
  MmaType product = MmaType::bf16;
  float factor = 1;  // a power of two, what the other operand lacks; of fp16 also what half_of wants
  // Of fp16: a word for each block of the launch (weight_blocks), not 0 where fp16 does not hold one of its weights; and a word that is
  // set to 0. Of tf32: nothing is done where that word is 0.
  uint32_t* outside = nullptr;
  uint32_t* marked = nullptr;
  uint32_t images = 0;
  Image image[kMostParts];
  // How the view is read in few steps, where it can be; filled in by the launch.
  Leaf leaf;
  Rounder rounder;
  bool quick = false;
};

// What the parts of a convolution that are done in one launch do not share.
struct IgemmTaps {
  const uint8_t* image = nullptr;  // of weights
  uint32_t stages = 4;             // as in IgemmTiling
  bool resident = false;
  uint32_t first_h = 0, first_w = 0;  // as in IgemmShape
  uint32_t rows = 0, columns = 0;
  int16_t row[kMostTaps] = {}, column[kMostTaps] = {};
  int32_t lowest = 0;                          // of the taps' offsets, in pixels
  int32_t offset[kMostTaps * kMostTaps] = {};  // of taps, in bytes of a slab; padded: in places

  ULP_HD constexpr uint32_t taps() const { return rows * columns; }
};

struct IgemmCall {
  const uint8_t* in = nullptr;  // pixels; filled in by the launch
  IgemmShape shape;             // of all parts, but for what IgemmTaps has
  IgemmTiling tiling;
  uint32_t parts = 1;
  IgemmTaps part[kMostParts];
  WriteView out;
  Rounder rounder;
  // Codes: to their place in an operand.
  uint32_t shift = 0, mask = 0;
  float factor = 1;
  Divisor area, width;  // of a result's image; padded: places of an image and of a row

  // Products in fp16 are not done, or not written, where too many numbers are outside of what fp16 has: then the tile's mark is 1, else 0. In tf32
  // marks, where there are any, say which tiles are to be done.
  uint8_t* marks = nullptr;     // of tiles
  uint32_t mark_shift = 0;      // a mark is for so many tiles one below the other, 2^this
  uint32_t* marked = nullptr;   // 1 where any is marked, of any part
  HalfFormat half;              // of the codes
  int32_t half_power = 0;       // fp16 without an offset has products times 2^this
  uint32_t highest = 0;         // codes of 8 bits: where all these bits of one are set, it is outside
  const float* most = nullptr;  // what was written of the images, at most; null: not known
  const uint32_t* outside = nullptr;
  uint32_t outside_words = 0;

  ULP_HD constexpr uint32_t mark_of(uint32_t tile) const {
    const uint32_t row = tile / tiling.column_tiles;
    return (row >> mark_shift) * tiling.column_tiles + (tile - row * tiling.column_tiles);
  }
};

// Multiprocessors of the GPU; 0 where it is none that the kernels were made for, and those of an H200 where there is none.
uint32_t igemm_processors();

// Operations from which on a convolution is done in fp16 rather than in tf32: what that saves is then more than it takes to
// start the kernels that do marked tiles.
double half_operations();

// Of the launch.
uint32_t weight_blocks(const IgemmWeights& weights);
// Every stored weight is read once, and its rounding reported, if each of its taps is in one image.
// Those of several convolutions take one launch for each kind of them; what is filled in by the launch is changed.
void prepare_weights(std::span<IgemmWeights> weights, Stream stream);
// `in` is aligned to 16 bytes, as are its pixels.
void run_conv_igemm(const IgemmCall& call, Feed feed, const uint8_t* in, Stream stream);

}  // namespace ulp::cuda
