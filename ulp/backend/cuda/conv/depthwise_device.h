// Device code that the kernels of depthwise.h share. Only for files compiled as kernels.
#pragma once

#include <cmath>

#include "ulp/backend/cuda/access/vector.h"
#include "ulp/backend/cuda/conv/depthwise.h"

namespace ulp::cuda {

// Launches the kernels of depthwise_bf16.cu if they support this; `back`: the gradient of images.
bool depthwise_quick(const ConvExtents32& conv, const StepState* state, const StoredView& in,
                     const ReadView& weight, const ReadView& bias, bool back, const WriteView& out,
                     Stream stream);

// The same for depthwise_wgrad_bf16.cu: the number of blocks with partial sums; 0 if it never
// supports this.
uint32_t depthwise_quick_blocks(const ConvExtents32& conv);
bool depthwise_quick_weight(const ConvExtents32& conv, const StoredView& x, const StoredView& dout,
                            double* partials, Stream stream);

}  // namespace ulp::cuda

namespace ulp::cuda::depthwise {

// How work is distributed. A block has some vectors of channels (a chunk of them) and several
// workers; a worker has one thread per vector. Workers take tiles: strips of an image, a few
// columns wide and some rows long, or single pixels.
struct Cut {
  uint32_t vectors, lanes, chunks;  // of all channels; of a block; blocks side by side
  uint32_t workers, blocks;         // of a block; of a chunk
  uint32_t rows, pieces, strips;    // rows of a tile; tiles above and next to each other
  uint32_t tiles;
};

// With four channels each and 7x7 taps, this many lanes just fit shared memory.
inline constexpr uint32_t kMostLanes = 56;
// From this many on, a warp's accesses are whole sectors.
inline constexpr uint32_t kFewestLanes = 16;
// Rows of a tile that could be longer: two more rows are read beyond its ends.
inline constexpr uint32_t kFewestRows = 8;

// Chooses lanes such that few threads are idle.
inline Cut make_cut(const ConvExtents32& d, uint32_t width, uint32_t rows, uint32_t columns, uint32_t strip,
                    uint32_t most_blocks) {
  Cut cut{};
  cut.vectors = d.c / width;
  uint64_t best = 0;
  for (uint32_t lanes = 1; lanes <= cut.vectors && lanes <= kMostLanes; ++lanes) {
    if (lanes < kFewestLanes && lanes < cut.vectors) continue;
    const uint32_t chunks = (cut.vectors + lanes - 1) / lanes, workers = kThreads / lanes;
    const uint64_t used = (uint64_t{cut.vectors} << 32) / (chunks * lanes) * (workers * lanes);
    if (used < best) continue;
    best = used;
    cut.lanes = lanes;
    cut.chunks = chunks;
    cut.workers = workers;
  }
  cut.strips = (columns + strip - 1) / strip;
  cut.rows = rows;
  for (;;) {
    cut.pieces = (rows + cut.rows - 1) / cut.rows;
    cut.tiles = d.n * cut.pieces * cut.strips;
    // Several waves of blocks, so that the last one costs little.
    constexpr uint32_t kMany = kProcessors * 16;
    if (cut.rows <= kFewestRows || cut.tiles / cut.workers * cut.chunks >= kMany) break;
    cut.rows = (cut.rows + 1) / 2;
  }
  const uint32_t most = most_blocks / cut.chunks < 1 ? 1 : most_blocks / cut.chunks;
  cut.blocks = blocks_for(cut.tiles, cut.workers, most);
  return cut;
}

// For kernels whose blocks leave no partial results.
inline constexpr uint32_t kAnyBlocks = uint32_t{1} << 20;
inline constexpr uint32_t kSumBlocks = kProcessors * 4;

inline uint32_t width_of(const ConvExtents32& d) { return d.c % 4 == 0 ? 4 : d.c % 2 == 0 ? 2 : 1; }
inline bool three_by_three(const ConvExtents32& d) {
  return d.kernel_h == 3 && d.kernel_w == 3 && d.padding_h == 1 && d.padding_w == 1 &&
         d.stride_h == d.stride_w && (d.stride_h == 1 || d.stride_h == 2) && d.c % 2 == 0;
}

// A thread's position.
struct Place {
  uint32_t chunk, lane, vector, worker;  // the worker among all of the chunk
  bool works;

  __device__ Place(const Cut& cut, uint32_t block) {
    chunk = block % cut.chunks;
    lane = threadIdx.x % cut.lanes;
    vector = chunk * cut.lanes + lane;
    const uint32_t own = threadIdx.x / cut.lanes;
    worker = block / cut.chunks * cut.workers + own;
    works = own < cut.workers && vector < cut.vectors;
  }
};

struct Tile {
  uint32_t image, first_row, end_row, strip;
  __device__ Tile(const Cut& cut, uint32_t u, uint32_t rows) {
    strip = u % cut.strips;
    const uint32_t above = u / cut.strips;
    image = above / cut.pieces;
    first_row = above % cut.pieces * cut.rows;
    end_row = first_row + cut.rows < rows ? first_row + cut.rows : rows;
  }
};

// Loads the taps of a block's channels as operators read them: [tap][channel], followed by the
// bias, or zeros. The first block of a chunk reports them. `turned`: the last tap first.
template <int V>
__device__ inline void load_taps(const ConvExtents32& d, const Cut& cut, uint32_t chunk,
                                 const StepState* state, const ReadView& weight, const ReadView& bias,
                                 bool turned, float* taps) {
  const uint32_t channels = cut.lanes * V, first = chunk * channels, count = d.taps();
  const uint32_t here = d.c - first < channels ? d.c - first : channels;
  const bool has_bias = bias.stored.codes != nullptr;
  RangeCount seen, seen_bias;
  for (uint32_t i = threadIdx.x; i < here * count; i += blockDim.x) {
    const uint32_t tap = turned ? count - 1 - i % count : i % count;
    taps[tap * channels + i / count] = load_one(weight, *state, uint64_t{first} * count + i, seen);
  }
  for (uint32_t i = threadIdx.x; i < here; i += blockDim.x) {
    taps[count * channels + i] = has_bias ? load_one(bias, *state, first + i, seen_bias) : 0;
  }
  __syncthreads();
  if (blockIdx.x != chunk) return;
  if (weight.rounds) report(seen, weight.stats);
  if (has_bias && bias.rounds) report(seen_bias, bias.stats);
}

// A thread's taps of a 3x3 kernel in registers. Returns where they lie in shared memory: its bias
// comes 9 * cut.lanes * V later.
template <int V>
__device__ inline const float* own_taps(const Cut& cut, const Place& place, const float* shared,
                                        float (&taps)[9][V]) {
  const float* own = shared + place.lane * V;
#pragma unroll
  for (int k = 0; k < 9; ++k) {
#pragma unroll
    for (int v = 0; v < V; ++v) taps[k][v] = own[k * cut.lanes * V + v];
  }
  return own;
}

// ---- 3x3, padding 1 ----

// A row of codes in a strip; columns outside the image are not read.
template <int V, int B, int N>
struct Row {
  Codes<V, B> raw[N] = {};
  uint64_t first = 0;  // element of column 0, which may lie before the image

  __device__ void fetch_from(const uint8_t* codes, uint64_t row, int column, uint32_t width, uint32_t c) {
    first = row + static_cast<uint64_t>(static_cast<int64_t>(column) * c);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (static_cast<uint32_t>(column + j) < width)
        raw[j] = fetch<V, B>(codes, first + static_cast<uint32_t>(j) * c);
    }
  }
};

template <int V, int N>
__device__ inline void move_row(float (&to)[N][V], const float (&from)[N][V]) {
#pragma unroll
  for (int o = 0; o < N; ++o) {
#pragma unroll
    for (int v = 0; v < V; ++v) to[o][v] = from[o][v];
  }
}
template <int V, int N>
__device__ inline void clear_row(float (&row)[N][V]) {
#pragma unroll
  for (int o = 0; o < N; ++o) {
#pragma unroll
    for (int v = 0; v < V; ++v) row[o][v] = 0;
  }
}

// ---- any kernel, pixel by pixel ----

// Finds where tap `k` takes a value from: the pixel that output `o` reads with it; with `spread`,
// the output that reads pixel `o` with it. Returns whether `at` lies within `extent`.
__device__ inline bool tap_source(bool spread, uint32_t o, uint32_t k, uint32_t stride, uint32_t padding,
                                  uint32_t extent, uint32_t& at) {
  const int shifted =
      static_cast<int>(spread ? o + padding : o * stride + k) - static_cast<int>(spread ? k : padding);
  if (shifted < 0 || (spread && static_cast<uint32_t>(shifted) % stride != 0)) return false;
  at = spread ? static_cast<uint32_t>(shifted) / stride : static_cast<uint32_t>(shifted);
  return at < extent;
}

// ---- launches ----

// Calls with the width of vectors and the bytes of a code as compile-time constants.
template <int N>
struct Number {
  static constexpr int value = N;
};
template <typename Call>
inline void by_width(uint32_t width, const Call& call) {
  if (width == 4) return call(Number<4>());
  if (width == 2) return call(Number<2>());
  call(Number<1>());
}
// For even channels.
template <typename Call>
inline void by_width_and_bytes(uint32_t width, uint32_t bits, const Call& call) {
  const auto by_bytes = [&](auto v) {
    if (bits == 8) return call(v, Number<1>());
    if (bits == 16) return call(v, Number<2>());
    call(v, Number<4>());
  };
  if (width == 4) return by_bytes(Number<4>());
  by_bytes(Number<2>());
}

inline Grid grid_of(const Cut& cut, size_t floats) {
  return {cut.chunks * cut.blocks, kThreads, floats * sizeof(float)};
}

}  // namespace ulp::cuda::depthwise
