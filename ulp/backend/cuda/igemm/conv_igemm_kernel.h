// The implicit GEMM kernel of conv_igemm.h. Warp specialisation: two consumer warpgroups multiply;
// a producer warpgroup issues the copies of pixels and weights to shared memory, pipeline stages
// ahead. Consumers decode pixels to operands in registers while the tensor core works on the
// previous tap. For fp16, two warps of the producer warpgroup convert 16-bit codes in shared
// memory, once for all taps. Tiles are dealt round-robin to the blocks. Only for files compiled for
// sm_90a.
#pragma once

#include "ulp/backend/cuda/igemm/conv_igemm_launch.h"
#include "ulp/backend/cuda/igemm/epilogue.h"
#include "ulp/backend/cuda/igemm/fp16_fixup.h"
#include "ulp/backend/cuda/igemm/sm90.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {

// Two consumer warpgroups and one producer, which gives most of its registers to the consumers.
constexpr int kConsumers = 256, kIgemmThreads = kConsumers + 128;

// A thread's part of a pixel: `channels` / 4 neighbouring codes.
template <OperandFeed feed, int channels>
struct FeedPart {
  static constexpr int kWords = channels / 4 * static_cast<int>(feed_bytes(feed)) / 4;
  // k steps of the tensor core.
  static constexpr int kSteps = channels / (feeds_tf32(feed) ? 8 : 16);

  // The copy engine swizzles rows of 128 bytes, so that the same parts of neighbouring rows lie in
  // different banks.
  static constexpr bool kSwizzled = swizzles_rows(feed, channels);

  __device__ static void load(uint32_t address, uint32_t (&word)[kWords]) {
    const auto load_piece = [&](uint32_t from, int at) {
      asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(word[at]), "=r"(word[at + 1]), "=r"(word[at + 2]), "=r"(word[at + 3])
                   : "r"(from));
    };
    if constexpr (kSwizzled) {
      const uint32_t first = address ^ (address >> 3 & 0x70u);
      load_piece(first, 0);
      load_piece(first ^ 16u, 4);
    } else if constexpr (kWords == 4) {
      load_piece(address, 0);
    } else if constexpr (kWords == 2) {
      asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(word[0]), "=r"(word[1]) : "r"(address));
    } else {
      static_assert(kWords == 1);
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word[0]) : "r"(address));
    }
  }

  // Operands of row `row` (0: the warp's first eight rows, 1: the others).
  __device__ static void convert(const IgemmCall& call, const uint32_t (&word)[kWords], int row,
                                 uint32_t (&a)[kSteps][4]) {
    if constexpr (feed == OperandFeed::bf16_from_8 || feed == OperandFeed::fp16_from_8) {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        // Two codes, sign-extended and shifted to bf16's or fp16's position; the mask leaves one
        // sign bit. The missing exponent is in the weights or applied to the sums.
        a[i][row] = two_signed<0x9180>(word[i]) << call.shift & call.mask;
        a[i][2 + row] = two_signed<0xB3A2>(word[i]) << call.shift & call.mask;
      }
    } else if constexpr (feed == OperandFeed::bf16 || feed == OperandFeed::fp16_from_16) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        a[i][row] = word[2 * i];
        a[i][2 + row] = word[2 * i + 1];
      }
    } else {
      constexpr int kBits = feed == OperandFeed::tf32_from_8 ? 8 : 16, kEach = 32 / kBits;
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i) {
        const uint32_t top = word[i / kEach] << (32 - kBits - kBits * (i % kEach));
        const uint32_t placed = static_cast<uint32_t>(static_cast<int32_t>(top) >> call.shift) & call.mask;
        a[i / 2][row + 2 * (i % 2)] = float_bits(bits_float(placed) * call.factor);
      }
    }
  }
};

template <int kColumns, int kRowTiles, OperandFeed feed, int kChannels>
__global__ void __launch_bounds__(kIgemmThreads, kColumns* kRowTiles <= 64 ? 2 : 1)
    conv_igemm_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ IgemmCall call) {
  using Fed = FeedPart<feed, kChannels>;
  constexpr bool tf32 = feeds_tf32(feed), kFp16 = feeds_fp16(feed);
  constexpr int kSteps = Fed::kSteps;
  constexpr uint32_t kRowBytes = kChannels * feed_bytes(feed), kPartBytes = kRowBytes / 4;
  constexpr uint32_t kBlockBytes = kColumns * kChannels * (tf32 ? 4 : 2);
  constexpr int kRows = 128 * kRowTiles;
  extern __shared__ __align__(1024) uint8_t memory[];
  const IgemmShape& shape = call.shape;
  const IgemmTiling& tiling = call.tiling;
  const IgemmTaps& part = call.part[blockIdx.y];
  const uint32_t stages = part.stages, input_stages = tiling.input_stages;
  const bool stationary = part.stationary;
  if constexpr (tf32) {
    if (call.marked != nullptr && *call.marked == 0) return;
  }
  const uint32_t input_bytes = tiling.boxes * tiling.box_rows * kRowBytes;
  // Layout of shared memory: weight blocks, input stages, a row of zeros, barriers.
  const uint32_t base = shared_address(memory), input_base = base + stages * kBlockBytes;
  const uint32_t zeros = input_base + input_stages * input_bytes, barriers = zeros + 128;
  const uint32_t full_block = barriers, empty_block = full_block + 8 * stages;
  const uint32_t full_input = empty_block + 8 * stages, empty_input = full_input + 8 * input_stages;
  // For fp16: barriers for converted input stages, and for each converter warp a count of values
  // outside the window.
  const uint32_t ready_input = empty_input + 8 * input_stages, found_outside = ready_input + 8 * input_stages;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < stages; ++i) {
      barrier_init(full_block + 8 * i, 1);
      barrier_init(empty_block + 8 * i, kConsumers / 32);
    }
    for (uint32_t i = 0; i < input_stages; ++i) {
      barrier_init(full_input + 8 * i, 1);
      barrier_init(empty_input + 8 * i, kConsumers);
      if constexpr (kFp16) barrier_init(ready_input + 8 * i, kConverters);
    }
    barrier_init_done();
  }
  if (threadIdx.x < 32) reinterpret_cast<uint32_t*>(memory + (zeros - base))[threadIdx.x] = 0;
  const uint32_t taps = part.taps(), chunks = tiling.chunks;
  const uint32_t tiles = tiling.row_tiles * tiling.column_tiles;
  uint32_t offset = 0;
  if constexpr (kFp16) {
    uint32_t outside = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < call.outside_words; i += kIgemmThreads) outside |= call.outside[i];
    if (feed == OperandFeed::fp16_from_16 && call.most != nullptr)
      offset = window_offset(call.fp16_source, float_bits(*call.most));
    if (__syncthreads_or(static_cast<int>(outside)) != 0) {
      for (uint32_t tile = blockIdx.x + gridDim.x * threadIdx.x; tile < tiles;
           tile += gridDim.x * kIgemmThreads)
        call.marks[tile] = 1;
      if (threadIdx.x == 0) *call.marked = 1;
      return;
    }
  } else {
    __syncthreads();
  }
  // Whether to skip a tile: when recomputing, only marked tiles are done.
  const auto skips = [&](uint32_t tile) {
    if constexpr (tf32) return call.marks != nullptr && call.marks[call.mark_of(tile)] == 0;
    return false;
  };

  const auto results = static_cast<uint32_t>(shape.results());
  // The input pixel of a result, without a tap.
  const auto pixel_of = [&](uint32_t result, uint32_t& image, uint32_t& p, uint32_t& q) {
    image = call.area.quotient(result);
    const uint32_t rest = result - image * call.area.divisor;
    p = call.width.quotient(rest);
    q = rest - p * call.width.divisor;
    return static_cast<int32_t>((image * shape.in_h + p * shape.stride_h) * shape.in_w + q * shape.stride_w);
  };

  constexpr bool kTwo = kColumns * kRowTiles <= 64;  // two blocks per multiprocessor
  if (threadIdx.x >= kConsumers) {
    // The registers of consumers and producers together must not exceed those of the block at
    // launch.
    fewer_registers<!kFp16 ? 24 : kTwo ? 32 : 40>();
    if (taps == 0) return;
    if (threadIdx.x == kConsumers) {
      // Producer of input stages.
      uint32_t input_stage = 0, phase = 1;
      for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        if (skips(tile)) continue;
        uint32_t image, p, q;
        const int32_t first = pixel_of(tile / tiling.column_tiles * kRows, image, p, q) + part.lowest;
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
          barrier_wait(empty_input + 8 * input_stage, phase);
          barrier_expect(full_input + 8 * input_stage, input_bytes);
          for (uint32_t box = 0; box < tiling.boxes; ++box) {
            copy_box(input_base + input_stage * input_bytes + box * tiling.box_rows * kRowBytes, &map,
                     static_cast<int32_t>(chunk * kChannels),
                     first + static_cast<int32_t>(box * tiling.box_rows), full_input + 8 * input_stage);
          }
          if (++input_stage == input_stages) {
            input_stage = 0;
            phase ^= 1;
          }
        }
      }
    } else if (threadIdx.x == kConsumers + 32) {
      // Producer of weight blocks: a tile's blocks lie in the order of their use.
      uint32_t stage = 0, phase = 1;
      for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        if (skips(tile)) continue;
        const uint8_t* from = part.image + size_t{tile % tiling.column_tiles} * chunks * taps * kBlockBytes;
        for (uint32_t i = 0; i < chunks * taps; ++i, from += kBlockBytes) {
          barrier_wait(empty_block + 8 * stage, phase);
          barrier_expect(full_block + 8 * stage, kBlockBytes);
          copy_bytes(base + stage * kBlockBytes, from, kBlockBytes, full_block + 8 * stage);
          if (++stage == stages) {
            stage = 0;
            phase ^= 1;
          }
        }
        if (stationary) break;
      }
    } else if (kFp16 && threadIdx.x >= kConsumers + 64) {
      const uint32_t thread = threadIdx.x - (kConsumers + 64);
      const Converter<feed, kTwo ? 2 : 4> converter(call, offset);
      uint32_t input_stage = 0, phase = 0;
      for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
          barrier_wait(full_input + 8 * input_stage, phase);
          const uint32_t at = input_base + input_stage * input_bytes;
          const uint32_t found = converter.convert(at + thread * 16, at + tiling.input_rows * kRowBytes);
          // Orders these threads' writes before the next copy into this input stage.
          proxy_fence();
          if (thread % 32 == 0) {
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(found_outside + 8 * input_stage + thread / 32 * 4),
                         "r"(found)
                         : "memory");
          }
          barrier_arrive(ready_input + 8 * input_stage);
          if (++input_stage == input_stages) {
            input_stage = 0;
            phase ^= 1;
          }
        }
      }
    }
    return;
  }

  more_registers<kTwo ? 104 : kFp16 ? 232 : 240>();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  RangeCount seen;
  uint32_t stage = 0, stage_phase = 0, input_stage = 0, input_phase = 0;
  bool first_tile = true;
  for (uint32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    if (skips(tile)) continue;
    const uint32_t tile_first = tile / tiling.column_tiles * kRows;
    IgemmRow rows[kRowTiles][2];
    {
      uint32_t image, p, q;
      const int32_t first = pixel_of(tile_first, image, p, q) + part.lowest;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t result =
              tile_first + ((warp / 4) * kRowTiles + m) * 64 + (warp % 4) * 16 + half * 8 + g;
          IgemmRow& row = rows[m][half];
          row = {0, 0, 0xFFFFFFFFu};
          if (result >= results) continue;
          row.at = static_cast<uint32_t>(pixel_of(result, image, p, q) - first) * kRowBytes + t * kPartBytes;
          row.pixel = (image * shape.full_h + p * shape.step_h + part.first_h) * shape.full_w +
                      q * shape.step_w + part.first_w;
          uint32_t across = 0;
          for (uint32_t i = 0; i < part.columns; ++i) {
            across |= uint32_t{q * shape.stride_w + static_cast<uint32_t>(part.column[i]) < shape.in_w} << i;
          }
          for (uint32_t i = 0; i < part.rows; ++i) {
            const bool inside = p * shape.stride_h + static_cast<uint32_t>(part.row[i]) < shape.in_h;
            row.valid |= inside ? across << (i * part.columns) : 0;
          }
        }
      }
    }
    float sums[kRowTiles][kColumns / 2];
    if (taps == 0) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) sums[m][i] = 0;
      }
    }
    // Double-buffered operands: one set is made while the tensor core reads the other.
    uint32_t a[2][kSteps][4];
    uint32_t held = 0xFFFFFFFFu;  // the weight block being read, to be released
    int adds = 0;
    uint32_t outside = 0;  // count of values in the tile outside the window
    uint32_t where = 0;    // which chunks have them, bit = chunk % 32
    const uint32_t nothing = zeros + t * kPartBytes;
    const auto feed_tile = [&](uint32_t tap, uint32_t moved, int m, uint32_t(&to)[kSteps][4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const IgemmRow& row = rows[m][half];
        uint32_t word[Fed::kWords];
        Fed::load((row.valid >> tap & 1) != 0 ? row.at + moved : nothing, word);
        Fed::convert(call, word, half, to);
      }
    };
    const auto multiply = [&](uint32_t(&from)[kSteps][4], float(&into)[kColumns / 2]) {
      const uint64_t block = block_descriptor(base + stage * kBlockBytes, kColumns * 16, 128);
      hold_operands(from);
      mma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Mma<kColumns, feed_product(feed)>::run(into, from[step], block + ((step * 2 * kColumns * 16) >> 4),
                                               step > 0 ? 1 : adds);
      }
      mma_commit();
    };
    const auto give_back = [&] {
      if (!stationary && held != 0xFFFFFFFFu && lane == 0) barrier_arrive(empty_block + 8 * held);
    };
    const auto next_block = [&] {
      held = stage;
      if (++stage == stages) {
        stage = 0;
        stage_phase ^= 1;
      }
    };
    for (uint32_t chunk = 0; chunk < chunks && taps != 0; ++chunk) {
      if constexpr (kFp16) {
        barrier_wait(ready_input + 8 * input_stage, input_phase);
        uint32_t first, second;
        asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];"
                     : "=r"(first), "=r"(second)
                     : "r"(found_outside + 8 * input_stage)
                     : "memory");
        outside += first + second;
        where |= first + second != 0 ? 1u << chunk % 32 : 0;
      } else {
        barrier_wait(full_input + 8 * input_stage, input_phase);
      }
      const uint32_t input_at = input_base + input_stage * input_bytes;
      const auto wait_block = [&] {
        if (!stationary || first_tile) barrier_wait(full_block + 8 * stage, stage_phase);
      };
      if constexpr (kRowTiles == 2) {
        for (uint32_t tap = 0; tap < taps; ++tap) {
          const uint32_t moved = input_at + static_cast<uint32_t>(part.offset[tap]);
          mma_wait<1>();  // the products that read the first set
          feed_tile(tap, moved, 0, a[0]);
          wait_block();
          multiply(a[0], sums[0]);
          mma_wait<1>();  // the products that read the second set and the previous block
          give_back();
          feed_tile(tap, moved, 1, a[1]);
          multiply(a[1], sums[1]);
          adds = 1;
          next_block();
        }
      } else {
        const auto one = [&](uint32_t tap, uint32_t(&set)[kSteps][4]) {
          feed_tile(tap, input_at + static_cast<uint32_t>(part.offset[tap]), 0, set);
          wait_block();
          multiply(set, sums[0]);
          mma_wait<1>();  // the previous tap
          give_back();
          adds = 1;
          next_block();
        };
        uint32_t tap = 0;
        for (; tap + 1 < taps; tap += 2) {
          one(tap, a[0]);
          one(tap + 1, a[1]);
        }
        if (tap < taps) {
          one(tap, a[0]);
          mma_wait<0>();  // the next chunk begins with this set
        }
      }
      barrier_arrive(empty_input + 8 * input_stage);
      if (++input_stage == input_stages) {
        input_stage = 0;
        input_phase ^= 1;
      }
    }
    mma_wait<0>();
    give_back();
    first_tile = false;
    if constexpr (kFp16) {
      if (threadIdx.x == 0) {
        call.marks[tile] = outside > kMostOutside ? 1 : 0;
        if (outside > kMostOutside) *call.marked = 1;
      }
      if (outside > kMostOutside) continue;
      if constexpr (feed == OperandFeed::fp16_from_16) {
        for (uint32_t chunk = 0; chunk < chunks && where != 0; ++chunk) {
          if ((where >> chunk % 32 & 1) == 0) continue;
          uint32_t image, p, q;
          const int32_t first = pixel_of(tile_first, image, p, q) + part.lowest;
          const uint8_t* blocks =
              part.image + (size_t{tile % tiling.column_tiles} * chunks + chunk) * taps * kBlockBytes;
          add_below<kColumns, kRowTiles, kChannels>(call, part, offset, static_cast<uint32_t>(first), chunk,
                                                    blocks, t, rows, sums);
        }
      }
      // The power of two that the sums lack.
      const float factor =
          bits_float(static_cast<uint32_t>(static_cast<int32_t>(offset) - call.fp16_power + 127) << 23);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i) sums[m][i] *= factor;
      }
    }

    // A thread has kColumns / 4 neighbouring channels of each of its rows.
    const uint32_t channel = tile % tiling.column_tiles * kColumns + t * (kColumns / 4);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (rows[m][half].pixel == 0xFFFFFFFFu) continue;
        if (channel >= shape.out_c) continue;
        const uint64_t element = uint64_t{rows[m][half].pixel} * shape.out_c + channel;
        float x[kColumns / 4];
#pragma unroll
        for (int i = 0; i < kColumns / 4; ++i) x[i] = sums[m][4 * (i / 2) + 2 * half + i % 2];
        store_sums(call.out, call.rounder, element, x, seen);
      }
    }
  }
  report_warp(seen, call.out.stats);
}

template <int kColumns, int kRowTiles, OperandFeed feed, int kChannels>
void start_tile(const CUtensorMap& map, const IgemmCall& call, Stream stream) {
  auto* kernel = conv_igemm_kernel<kColumns, kRowTiles, feed, kChannels>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
  (void)allowed;
  kernel<<<dim3(call.tiling.grid, call.parts), kIgemmThreads, call.tiling.shared, stream>>>(map, call);
  check_launch();
}

template <OperandFeed feed, int kChannels>
void start_columns(const CUtensorMap& map, const IgemmCall& call, Stream stream) {
  const bool tall = call.tiling.rows == 256;
  switch (call.tiling.columns) {
    case 32:
      return tall ? start_tile<32, 2, feed, kChannels>(map, call, stream)
                  : start_tile<32, 1, feed, kChannels>(map, call, stream);
    case 64:
      return start_tile<64, 1, feed, kChannels>(map, call, stream);
    default:
      return tall ? start_tile<128, 2, feed, kChannels>(map, call, stream)
                  : start_tile<128, 1, feed, kChannels>(map, call, stream);
  }
}

template <OperandFeed feed>
void start_channels(const CUtensorMap& map, const IgemmCall& call, Stream stream) {
  if (call.tiling.channels == 16) return start_columns<feed, 16>(map, call, stream);
  if constexpr (feed == OperandFeed::bf16_from_8 || feed == OperandFeed::fp16_from_8) {
    if (call.tiling.channels == 64) return start_columns<feed, 64>(map, call, stream);
  } else if constexpr (feed == OperandFeed::bf16 || feed == OperandFeed::fp16_from_16) {
    if (call.tiling.channels == 64) {
      return call.tiling.rows == 256 ? start_tile<128, 2, feed, 64>(map, call, stream)
                                     : start_tile<128, 1, feed, 64>(map, call, stream);
    }
  }
  start_columns<feed, 32>(map, call, stream);
}

}  // namespace ulp::cuda
