// Implicit GEMM convolution on Hopper's tensor cores, from codes to codes: forward convolutions and
// gradients of inputs. The kernel reads stored codes and its epilogue writes rounded codes. Nothing
// is decoded to memory and nothing leaves in fp32. Workspace does not grow with the batch, with two
// exceptions: im2col where channels are few, and one byte per tile for fp16 products.
//
// One output element is a sum over taps and input channels: the input pixel, shifted by the tap,
// times the tap's weight matrix. The output pixels of a tile are neighbours in memory, so one
// contiguous range of input pixels serves all taps. That range, for one chunk of channels, is
// called an input stage. The copy engine brings it to shared memory; each consumer thread decodes
// its part into registers, and wgmma takes its left operand from there. Weights are decoded once
// per call and packed into blocks with the layout that wgmma reads.
//
// The order of summation is fixed: it depends on shapes and the number of multiprocessors alone,
// and for fp16 also on which values lie outside the fp16 window.
//
// Products are exact. The operand type holds every value of both formats, or it is fp16 with a
// fixup: a few values of a tile that are too small for fp16 are multiplied separately in fp32
// (fp16_fixup.h). A tile with more of them, or with values above the window, is not written but
// marked. Kernels launched afterwards compute the marked tiles in tf32; they return at once if no
// tile is marked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"
#include "ulp/backend/cuda/igemm/fp16_window.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// How codes become tensor core operands.
enum class OperandFeed : uint8_t {
  bf16_from_8,   // 8-bit codes without specials, multiplied as bf16
  bf16,          // bf16, used as stored
  tf32_from_8,   // 8-bit codes without specials, multiplied as tf32
  tf32_from_16,  // 16-bit codes without specials, multiplied as tf32
  fp16_from_8,   // 8-bit codes without specials, multiplied as fp16; marked tiles go to tf32
  // 16-bit codes without specials, moved into the fp16 window (fp16_window.h); marked tiles go to
  // tf32.
  fp16_from_16,
};
// The operand type of the tensor core.
enum class MmaType : uint8_t { bf16, tf32, fp16 };
constexpr MmaType feed_product(OperandFeed feed) {
  if (feed == OperandFeed::tf32_from_8 || feed == OperandFeed::tf32_from_16) return MmaType::tf32;
  return feed == OperandFeed::fp16_from_8 || feed == OperandFeed::fp16_from_16 ? MmaType::fp16
                                                                               : MmaType::bf16;
}
constexpr bool feeds_tf32(OperandFeed feed) { return feed_product(feed) == MmaType::tf32; }
constexpr bool feeds_fp16(OperandFeed feed) { return feed_product(feed) == MmaType::fp16; }
constexpr uint32_t feed_bytes(OperandFeed feed) {
  return feed == OperandFeed::bf16_from_8 || feed == OperandFeed::tf32_from_8 ||
                 feed == OperandFeed::fp16_from_8
             ? 1
             : 2;
}
// True if the copy engine swizzles rows of this many channels.
constexpr bool swizzles_rows(OperandFeed feed, uint32_t channels) {
  return channels * feed_bytes(feed) == 128;
}

// For 16-bit codes: how many values below the window a tile may have and still be done in fp16. The
// input stage's groups of eight channels are dealt to 64 converter threads. Each chunk counts the
// threads that saw such a value, and the counts of all chunks are added. The limit is below 16, the
// count when one channel of 32 holds nothing else.
inline constexpr uint32_t kMostOutside = 12;

inline constexpr uint32_t kMostTaps = 5;   // along an axis
inline constexpr uint32_t kMostParts = 9;  // parts of an input gradient, see conv_tiling.h

// Tap (i, j) adds pixel (p * stride_h + row[i], q * stride_w + column[j]), times the tap's matrix,
// to result (p, q). Result (p, q), p < out_h, q < out_w, is stored at (p * step_h + first_h, q *
// step_w + first_w) of an image of full_h by full_w.
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

// n / divisor by multiplication, for n below 2^31.
struct Divisor {
  uint32_t divisor = 1, factor = 0x80000000u, shift = 31;

  static constexpr Divisor of(uint32_t divisor) {
    uint32_t bits = 0;
    while ((uint64_t{1} << bits) < divisor) ++bits;
    // The factor is 2^(31 + bits) / divisor, rounded up. It is below 2^32, and its error is too
    // small to change any quotient.
    return {divisor, static_cast<uint32_t>(((uint64_t{1} << (31 + bits)) + divisor - 1) / divisor),
            31 + bits};
  }
  ULP_HD constexpr uint32_t quotient(uint32_t n) const {
    return static_cast<uint32_t>((uint64_t{n} * factor) >> shift);
  }
};

// Halo tiles: tiles kept in shared memory with their borders (conv_halo.h).
struct HaloTiles {
  uint32_t images = 1, rows = 1;  // a tile's results: whole images, or rows of one image
  // Places from one row to the next, and from one image to the next.
  uint32_t pitch = 0, image_pitch = 0;
  uint32_t pixels = 0;  // pixels of a tile in shared memory
  // Groups of 64 results in a tile; 0 if this is no halo tiling.
  uint32_t pieces = 0;
  int32_t row = 0, column = 0;  // first input pixel that the tile's first result reads
  Divisor bands;                // tiles per image
};

// How the work is divided into tiles.
struct IgemmTiling {
  // Results of a tile, 128 or 256; halo: places, borders included.
  uint32_t rows = 128;
  uint32_t columns = 64;   // output channels of a tile: 32, 64 or 128; halo: 16, 32 or 64
  uint32_t channels = 64;  // input channels of an input stage: 16, 32 or 64
  uint32_t grid = 1;       // thread blocks
  uint32_t stages = 4;     // pipeline stages for weight blocks in shared memory
  // All weight blocks of a tile fit the stages and stay in shared memory.
  bool stationary = false;
  uint32_t input_stages = 2;         // input stages in shared memory
  uint32_t input_rows = 0;           // pixels of an input stage
  uint32_t boxes = 1, box_rows = 0;  // copies that fill one input stage, and pixels of each
  uint32_t column_tiles = 1, row_tiles = 1, chunks = 1;
  size_t shared = 0;  // bytes of shared memory
  HaloTiles halo;

  constexpr bool is_halo() const { return halo.pieces != 0; }
  constexpr uint32_t block_bytes(OperandFeed feed) const {
    return columns * channels * (feeds_tf32(feed) ? 4 : 2);
  }
  // Bytes of all packed weights.
  constexpr size_t image_bytes(OperandFeed feed, uint32_t taps) const {
    return size_t{column_tiles} * chunks * taps * block_bytes(feed);
  }
};

// Position of element (output channel n, input channel c) in a packed weight block, in elements. A
// thread holds neighbouring input channels and neighbouring output channels, so the packing
// permutes the tensor core's columns and k steps to match. `natural`: the left operand comes from
// shared memory with its channels in order, so only output channels are permuted.
ULP_HD constexpr uint32_t block_position(uint32_t columns, uint32_t channels, bool tf32, uint32_t n,
                                         uint32_t c, bool natural = false) {
  const uint32_t each = channels / 4, piece = tf32 ? 4 : 8, pair = tf32 ? 2 : 4;
  // Input channel: thread, k step of the tensor core, place in the step.
  const uint32_t thread = c / each, step = c % each / pair, j = c % pair;
  const uint32_t k = tf32 ? thread + 4 * j : 2 * thread + (j & 1) + 8 * (j >> 1);
  // Output channel: thread t holds columns 8i + 2t and 8i + 2t + 1 for each i.
  const uint32_t own = columns / 4, t = n / own, i = n % own;
  const uint32_t column = 8 * (i / 2) + 2 * t + i % 2;
  // Core matrices: eight columns of 16 bytes each lie together.
  const uint32_t row = natural ? c / piece : 2 * step + k / piece;
  return ((row * (columns / 8) + column / 8) * 8 + column % 8) * piece + (natural ? c : k) % piece;
}

// Packing of weights into blocks, for all parts of a convolution at once. Elements without a weight
// are 0.
struct IgemmWeights {
  struct Image {
    uint32_t* to = nullptr;
    uint32_t blocks = 0;                        // (column tile, chunk, tap)
    uint32_t first_block = 0;                   // in the launch; set by the launch
    uint8_t column_bits = 5, channel_bits = 4;  // of a block: powers of two
    bool natural = false;                       // input channels in order; never for tf32
    Divisor taps, chunks;
    // The tap of the stored weight for each tap of the part.
    uint8_t source[kMostTaps * kMostTaps] = {};
  };

  ReadView view;
  const StepState* state = nullptr;
  uint32_t out_c = 1, in_c = 1;  // as the kernel sees them: multiples of kGroup
  uint32_t weight_taps = 1;      // taps of the stored weight
  bool transposed = false;       // stored as (in_c, taps, out_c), else as (out_c, taps, in_c)
  MmaType product = MmaType::bf16;
  // A power of two that the other operand lacks; for fp16 also what fp16_of expects.
  float factor = 1;
  // For fp16: `outside` has one word per block of the launch (weight_blocks), nonzero if fp16 does
  // not hold one of its weights; the word at `marked` is set to 0. For tf32: packing does nothing
  // where that word is 0.
  uint32_t* outside = nullptr;
  uint32_t* marked = nullptr;
  uint32_t images = 0;
  Image image[kMostParts];
  // A short path to read the view, where there is one; set by the launch.
  Leaf leaf;
  Rounder rounder;
  bool quick = false;
};

// The arguments that differ between the parts of a convolution that share one launch.
struct IgemmTaps {
  const uint8_t* image = nullptr;  // packed weights
  uint32_t stages = 4;             // as in IgemmTiling
  bool stationary = false;
  uint32_t first_h = 0, first_w = 0;  // as in IgemmShape
  uint32_t rows = 0, columns = 0;
  int16_t row[kMostTaps] = {}, column[kMostTaps] = {};
  int32_t lowest = 0;                          // lowest tap offset, in pixels
  int32_t offset[kMostTaps * kMostTaps] = {};  // tap offsets, in bytes of an input stage; halo: in places

  ULP_HD constexpr uint32_t taps() const { return rows * columns; }
};

struct IgemmCall {
  const uint8_t* in = nullptr;  // pixels; set by the launch
  IgemmShape shape;             // of all parts, except for what IgemmTaps has
  IgemmTiling tiling;
  uint32_t parts = 1;
  IgemmTaps part[kMostParts];
  WriteView out;
  Rounder rounder;
  // Moves codes to their place in an operand.
  uint32_t shift = 0, mask = 0;
  float factor = 1;
  Divisor area, width;  // of a result's image; halo: places of an image and of a row

  // fp16 products of a tile are skipped or not written if too many values are outside the window.
  // The tile's mark is then 1, else 0. In tf32 calls the marks, if there are any, say which tiles
  // to compute.
  uint8_t* marks = nullptr;     // one per tile, or per 2^mark_shift tiles
  uint32_t mark_shift = 0;      // one mark serves 2^mark_shift tiles, one below the other
  uint32_t* marked = nullptr;   // 1 if any tile of any part is marked
  Fp16Source fp16_source;       // format of the codes
  int32_t fp16_power = 0;       // fp16 products at window offset 0 are too large by 2^fp16_power
  uint32_t highest = 0;         // 8-bit codes: a code with all these bits set is outside
  const float* most = nullptr;  // largest magnitude written to the images; null: unknown
  const uint32_t* outside = nullptr;
  uint32_t outside_words = 0;

  ULP_HD constexpr uint32_t mark_of(uint32_t tile) const {
    const uint32_t row = tile / tiling.column_tiles;
    return (row >> mark_shift) * tiling.column_tiles + (tile - row * tiling.column_tiles);
  }
};

// Number of multiprocessors. 0 on a GPU that the kernels were not made for; an H200's number if
// there is no GPU.
uint32_t igemm_processors();

// Number of operations from which fp16 is used instead of tf32. From there on the saving exceeds
// the cost of launching the kernels for marked tiles.
double fp16_operations();

// Number of blocks in the launch.
uint32_t weight_blocks(const IgemmWeights& weights);
// Reads every stored weight once and reports its rounding, provided that each tap is in one image.
// Weights of several convolutions take one launch per kind. The fields that the launch sets are
// changed.
void prepare_weights(std::span<IgemmWeights> weights, Stream stream);
// `in` and every pixel in it must be aligned to 16 bytes.
void run_conv_igemm(const IgemmCall& call, OperandFeed feed, const uint8_t* in, Stream stream);

}  // namespace ulp::cuda
