#include <algorithm>
#include <span>
#include <vector>

#include "ulp/backend/cuda/elementwise/fused_groups.h"
#include "ulp/backend/cuda/igemm/conv_igemm.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

// Small blocks: even few weights are spread over many multiprocessors.
constexpr uint32_t kEach = 128;

// A weight block consists of words of four bytes, [row][column][4]. The four words belong to the
// four threads that hold a pixel's channels (block_position); in natural blocks a row has eight
// channels in order. A word has two neighbouring input channels in bf16 or fp16, or one in tf32.
template <MmaType kProduct>
struct Words {
  static constexpr uint32_t kChannels = kProduct == MmaType::tf32 ? 1 : 2;

  // `outside` becomes nonzero if a number does not fit fp16.
  __device__ static uint32_t word(float low, float high, float factor, uint32_t& outside) {
    if constexpr (kProduct == MmaType::tf32) {
      return float_bits(low * factor);
    } else if constexpr (kProduct == MmaType::fp16) {
      const uint32_t first = float_bits(low * factor), second = float_bits(high * factor);
      outside |= not_fp16(first) | not_fp16(second);
      return fp16_of(first) | fp16_of(second) << 16;
    } else {
      return float_bits(low * factor) >> 16 | (float_bits(high * factor) & 0xFFFF0000u);
    }
  }
};

// Reads a group of the stored weight as operators see it. kQuick: the storage is fp32 or plain
// codes, and rounding, if any, is to nearest even.
template <bool kQuick>
__device__ inline void read_weights(const IgemmWeights& weights, uint64_t group, float (&x)[8],
                                    RangeCount& seen) {
  if constexpr (kQuick) {
    Raw<32> raw;
    load_raw(weights.leaf, group, raw);
    decode_group(weights.leaf, raw, x);
    if (weights.rounder.on) round_quick<false>(weights.rounder, x, seen);
  } else {
    load(weights.view, *weights.state, group, x, seen);
  }
}

// Log2 of the threads that pack a block. Each reads a group of eight neighbouring input channels;
// if output channels are contiguous in memory, a group of those for each channel of a word.
template <bool kTransposed, MmaType kProduct>
ULP_HD constexpr uint32_t thread_bits(uint32_t column_bits, uint32_t channel_bits) {
  return column_bits + channel_bits - 3 - (kTransposed && kProduct != MmaType::tf32 ? 1 : 0);
}

// The weights of one launch.
template <uint32_t most>
struct Batch {
  uint32_t count = 0;
  uint32_t first_block[most] = {};
  IgemmWeights weights[most];
};
// The most weights that fit the kernel parameters.
constexpr uint32_t kMostWeights = 20;
static_assert(sizeof(Batch<kMostWeights>) <= 32764);

// fp16 takes one weight at a time, because findings are kept per block.
template <bool kTransposed, MmaType kProduct, bool kQuick, uint32_t most>
__global__ void weights_kernel(ULP_TABLE(Batch<most>) batch) {
  using Made = Words<kProduct>;
  uint32_t of = 0;
  while (of + 1 < batch.count && blockIdx.x >= batch.first_block[of + 1]) ++of;
  const IgemmWeights& weights = batch.weights[of];
  if constexpr (kProduct == MmaType::tf32) {
    if (weights.marked != nullptr && *weights.marked == 0) return;
  }
  uint32_t which = 0, outside = 0;
  while (which + 1 < weights.images && blockIdx.x >= weights.image[which + 1].first_block) ++which;
  const IgemmWeights::Image& image = weights.image[which];
  const uint32_t column_bits = image.column_bits, channel_bits = image.channel_bits;
  const uint32_t bits = thread_bits<kTransposed, kProduct>(column_bits, channel_bits);
  const uint32_t index = (blockIdx.x - image.first_block) * blockDim.x + threadIdx.x;
  const uint32_t block = index >> bits, item = index & ((1u << bits) - 1);
  RangeCount seen;
  if (block < image.blocks) {
    const uint32_t above = image.taps.quotient(block), tap = block - above * image.taps.divisor;
    const uint32_t tile = image.chunks.quotient(above), chunk = above - tile * image.chunks.divisor;
    const uint32_t source = image.source[tap], own_bits = column_bits - 2, each_bits = channel_bits - 2;
    const uint32_t first_n = tile << column_bits, first_c = chunk << channel_bits;
    uint32_t* to = image.to + (uint64_t{block} << (column_bits + channel_bits)) / Made::kChannels;
    if constexpr (!kTransposed) {
      // Neighbouring lanes take the channels of neighbouring consumer threads, so their writes are
      // contiguous.
      const uint32_t part_bits = channel_bits < 5 ? 1 : 2;
      const uint32_t part = item & ((1u << part_bits) - 1);
      const uint32_t column = item >> part_bits & ((1u << column_bits) - 1);
      const uint32_t c = (part << (channel_bits - part_bits)) + (item >> (part_bits + column_bits)) * kGroup;
      const uint32_t n = first_n + ((column % 8 / 2) << own_bits) + column / 8 * 2 + column % 2;
      float x[8] = {};
      if (n < weights.out_c && first_c + c < weights.in_c) {
        const uint64_t row = uint64_t{n} * weights.weight_taps + source;
        read_weights<kQuick>(weights, (row * weights.in_c + first_c + c) / kGroup, x, seen);
      }
#pragma unroll
      for (uint32_t i = 0; i < 8; i += Made::kChannels) {
        const uint32_t thread = image.natural ? i / 2 : (c + i) >> each_bits;
        const uint32_t row = image.natural ? c / 8 : ((c + i) & ((1u << each_bits) - 1)) / Made::kChannels;
        to[((row << column_bits) + column) * 4 + thread] =
            Made::word(x[i], x[i + Made::kChannels - 1], weights.factor, outside);
      }
    } else {
      const uint32_t thread = item % 4, group_bits = column_bits - 3;
      const uint32_t group = item / 4 & ((1u << group_bits) - 1), row = item / 4 >> group_bits;
      // Neighbouring lanes take the columns of neighbouring consumer threads, if each of those has
      // a whole group.
      const uint32_t local = own_bits < 3 ? group * kGroup : (group % 4 << own_bits) + group / 4 * kGroup;
      const uint32_t n = first_n + local;
      const uint32_t c =
          first_c + (image.natural ? row * 8 + thread * 2 : (thread << each_bits) + row * Made::kChannels);
      float x[Made::kChannels][8] = {};
#pragma unroll
      for (uint32_t i = 0; i < Made::kChannels; ++i) {
        if (n < weights.out_c && c + i < weights.in_c) {
          const uint64_t stored = uint64_t{c + i} * weights.weight_taps + source;
          read_weights<kQuick>(weights, (stored * weights.out_c + n) / kGroup, x[i], seen);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t own = (local + i) & ((1u << own_bits) - 1), t = (local + i) >> own_bits;
        const uint32_t column = own / 2 * 8 + 2 * t + own % 2;
        to[((row << column_bits) + column) * 4 + thread] =
            Made::word(x[0][i], x[Made::kChannels - 1][i], weights.factor, outside);
      }
    }
  }
  report(seen, weights.view.stats);
  if constexpr (kProduct == MmaType::fp16) {
    __shared__ uint32_t warps[kEach / 32];
    const uint32_t any = warp_max(outside != 0 ? 1 : 0);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = any;
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t all = 0;
      for (const uint32_t warp : warps) all |= warp;
      weights.outside[blockIdx.x] = all;
      if (blockIdx.x == 0) *weights.marked = 0;
    }
  }
}

// Sets where images begin, from this block of the launch on. Returns the block after them.
template <bool kTransposed, MmaType kProduct>
uint32_t count_blocks(IgemmWeights& weights, uint32_t blocks) {
  for (uint32_t i = 0; i < weights.images; ++i) {
    IgemmWeights::Image& image = weights.image[i];
    image.first_block = blocks;
    const uint32_t bits = thread_bits<kTransposed, kProduct>(image.column_bits, image.channel_bits);
    blocks += ((image.blocks << bits) + kEach - 1) / kEach;
  }
  return blocks;
}

template <bool kTransposed, MmaType kProduct, bool kQuick, uint32_t most>
void launch_batch(std::span<IgemmWeights* const> members, Stream stream) {
  Batch<most> batch;
  uint32_t blocks = 0;
  for (IgemmWeights* weights : members) {
    batch.first_block[batch.count] = blocks;
    blocks = count_blocks<kTransposed, kProduct>(*weights, blocks);
    batch.weights[batch.count++] = *weights;
  }
  if (blocks == 0) return;
  launch(weights_kernel<kTransposed, kProduct, kQuick, most>, {blocks, kEach}, stream, batch);
}

// Launches all weights of one kind, as many at once as fit.
template <bool kTransposed, MmaType kProduct, bool kQuick>
void start(std::span<IgemmWeights> all, Stream stream) {
  std::vector<IgemmWeights*> members;
  for (IgemmWeights& weights : all) {
    if (weights.transposed == kTransposed && weights.product == kProduct && weights.quick == kQuick)
      members.push_back(&weights);
  }
  constexpr uint32_t kMost = kProduct == MmaType::fp16 ? 1 : kMostWeights;
  for (std::span<IgemmWeights* const> rest = members; !rest.empty();) {
    const size_t now = std::min<size_t>(rest.size(), kMost);
    if (now == 1) {
      launch_batch<kTransposed, kProduct, kQuick, 1>(rest.first(now), stream);
    } else {
      launch_batch<kTransposed, kProduct, kQuick, kMost>(rest.first(now), stream);
    }
    rest = rest.subspan(now);
  }
}

template <bool kTransposed, MmaType kProduct>
void start(std::span<IgemmWeights> all, Stream stream) {
  start<kTransposed, kProduct, true>(all, stream);
  start<kTransposed, kProduct, false>(all, stream);
}

}  // namespace

uint32_t weight_blocks(const IgemmWeights& weights) {
  IgemmWeights counted = weights;
  // bf16 and fp16 are counted alike: both have 16 bits.
  if (weights.product == MmaType::tf32) {
    return weights.transposed ? count_blocks<true, MmaType::tf32>(counted, 0)
                              : count_blocks<false, MmaType::tf32>(counted, 0);
  }
  return weights.transposed ? count_blocks<true, MmaType::fp16>(counted, 0)
                            : count_blocks<false, MmaType::fp16>(counted, 0);
}

void prepare_weights(std::span<IgemmWeights> all, Stream stream) {
  for (IgemmWeights& weights : all) {
    // Elements that are only read report nothing.
    ReadView stored = weights.view;
    stored.rounds = false;
    weights.leaf = make_leaf(stored);
    weights.rounder =
        make_rounder(!weights.view.rounds, weights.view.operand, weights.view.mode, weights.view.number);
    weights.quick = !weights.view.rounds_s2fp8 && !weights.view.rounds_scaled && weights.leaf.quick &&
                    (!weights.rounder.on || weights.rounder.quick);
  }
  start<false, MmaType::bf16>(all, stream);
  start<false, MmaType::tf32>(all, stream);
  start<false, MmaType::fp16>(all, stream);
  start<true, MmaType::bf16>(all, stream);
  start<true, MmaType::tf32>(all, stream);
  start<true, MmaType::fp16>(all, stream);
}

}  // namespace ulp::cuda
