// The kernel of conv_halo.h. All threads of a block load its first tile. Then three warpgroups
// multiply while the fourth loads the next tile; if there is none, it multiplies too. Codes become
// bf16 on the way into shared memory, once for all taps.
#include "ulp/backend/cuda/igemm/conv_halo.h"

#include "ulp/backend/cuda/igemm/conv_halo_device.h"
#include "ulp/backend/cuda/igemm/epilogue.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kHaloThreads = 512, kWarpgroup = 128;

// Loads a tile's pixels into the planes at `to`, as thread `thread` of `count`. Pieces of 16 bytes
// are dealt round-robin; eight pixels of the same piece go to consecutive threads. So eight lanes
// write contiguous bytes of a plane, and a warp reads contiguous global memory.
template <OperandFeed feed, uint32_t kChannels, int kAtOnce>
__device__ inline void fetch(const IgemmCall& call, uint32_t index, uint32_t to, uint32_t thread,
                             uint32_t count) {
  constexpr uint32_t kRowBytes = kChannels * feed_bytes(feed), kPieces = kRowBytes / 16;
  const HaloTile tile = halo_tile(call, index);
  const uint32_t pixels = call.tiling.halo.pixels, plane = pixels * 16;
  const uint32_t items = (pixels + 7) / 8 * 8 * kPieces;
  const auto place = [&](uint32_t item, uint32_t& piece) {
    piece = item / 8 % kPieces;
    return item / (8 * kPieces) * 8 + item % 8;
  };
  if constexpr (feed == OperandFeed::bf16) {
#pragma unroll kAtOnce
    for (uint32_t item = thread; item < items; item += count) {
      uint32_t piece;
      const uint32_t i = place(item, piece);
      if (i >= pixels) continue;
      const uint32_t pixel = halo_pixel(call, tile, i);
      const uint8_t* from = pixel == kNoPixel ? call.in : call.in + uint64_t{pixel} * kRowBytes + piece * 16;
      copy_piece(to + piece * plane + i * 16, from, pixel != kNoPixel);
    }
    wait_copies();
  } else {
    for (uint32_t first = thread; first < items; first += kAtOnce * count) {
      uint4 word[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        uint32_t piece;
        const uint32_t i = place(first + u * count, piece);
        word[u] = make_uint4(0, 0, 0, 0);
        if (i >= pixels) continue;
        const uint32_t pixel = halo_pixel(call, tile, i);
        if (pixel == kNoPixel) continue;
        word[u] = __ldg(reinterpret_cast<const uint4*>(call.in + uint64_t{pixel} * kRowBytes + piece * 16));
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        uint32_t piece;
        const uint32_t i = place(first + u * count, piece);
        if (i >= pixels) continue;
        // Two codes, sign-extended and shifted to bf16's position; the mask leaves one sign bit.
        const auto low = [&](uint32_t codes) { return two_signed<0x9180>(codes) << call.shift & call.mask; };
        const auto high = [&](uint32_t codes) { return two_signed<0xB3A2>(codes) << call.shift & call.mask; };
        const uint32_t at = to + 2 * piece * plane + i * 16;
        store_piece(at, low(word[u].x), high(word[u].x), low(word[u].y), high(word[u].y));
        store_piece(at + plane, low(word[u].z), high(word[u].z), low(word[u].w), high(word[u].w));
      }
    }
  }
}

// Sums all taps and channels of one group of 64 results. Asynchronous. `a` and `b` are descriptors;
// planes are `plane` bytes apart.
template <int kColumns, int kSteps>
__device__ inline void multiply(const IgemmCall& call, uint64_t a, uint64_t b, uint32_t plane,
                                float (&sums)[kColumns / 2]) {
  // The address is in the lower half, and no carry leaves it.
  const auto moved = [](uint64_t descriptor, uint32_t by) {
    return (descriptor & ~uint64_t{0xFFFFFFFFu}) | (static_cast<uint32_t>(descriptor) + by);
  };
  const auto add_tap = [&](uint32_t tap, int adds) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const auto i = static_cast<uint32_t>(step);
      SharedMma<kColumns>::run(sums,
                               moved(a, static_cast<uint32_t>(call.part[0].offset[tap]) + i * (plane / 8)),
                               moved(b, (tap * kSteps + i) * kColumns * 2), step == 0 ? adds : 1);
    }
  };
  const uint32_t taps = call.shape.taps();
  if (taps == 9) {
    mma_fence();
#pragma unroll
    for (uint32_t tap = 0; tap < 9; ++tap) add_tap(tap, tap == 0 ? 0 : 1);
  } else {
#pragma unroll 1
    for (uint32_t tap = 0; tap < taps; ++tap) {
      mma_fence();
      add_tap(tap, tap == 0 ? 0 : 1);
    }
  }
  mma_commit();
}

template <OperandFeed feed, int kColumns, int kChannels>
__global__ void __launch_bounds__(kHaloThreads, kColumns <= 32 ? 2 : 1)
    halo_kernel(ULP_TABLE(IgemmCall) call) {
  ULP_SHARED(uint8_t, memory);
  const IgemmTiling& tiling = call.tiling;
  const uint32_t plane = tiling.halo.pixels * 16, input_bytes = plane * (kChannels / 8);
  // Layout: input stages, weights, a barrier. What the last 64 results read beyond an input stage
  // lies within this.
  const uint32_t base = shared_address(memory);
  const uint32_t weights = base + (tiling.input_stages * input_bytes + 127) / 128 * 128;
  const uint32_t weight_bytes = call.shape.taps() * (kChannels * kColumns * 2);
  const uint32_t barrier = weights + (weight_bytes > kHaloSlack ? weight_bytes : kHaloSlack);
  const uint32_t column_tile = blockIdx.x % tiling.column_tiles;
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_init_done();
    barrier_expect(barrier, weight_bytes);
    copy_bytes(weights, call.part[0].image + size_t{column_tile} * weight_bytes, weight_bytes, barrier);
  }
  const uint32_t warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / kWarpgroup, 0);
  constexpr uint32_t kGroups = kHaloThreads / kWarpgroup, kNone = 0xFFFFFFFFu;
  RangeCount seen;
  uint32_t now = kNone, next = blockIdx.x / tiling.column_tiles, input_stage = base, next_input = base;
  while (true) {
    const bool more = next < tiling.row_tiles, started = now != kNone, fetches = more && group == kGroups - 1;
    if (more && (!started || fetches)) {
      fetch<feed, kChannels, kColumns == 64 ? 8 : 4>(call, next, next_input,
                                                     started ? threadIdx.x % kWarpgroup : threadIdx.x,
                                                     started ? kWarpgroup : kHaloThreads);
      proxy_fence();
    }
    if (started && !fetches) {
      barrier_wait(barrier, 0);
      const HaloTile tile = halo_tile(call, now);
      for (uint32_t piece = group; piece < tiling.halo.pieces; piece += more ? kGroups - 1 : kGroups) {
        float sums[kColumns / 2];
        __syncwarp();  // some threads of the warp may still store
        multiply<kColumns, kChannels / 16>(call,
                                           block_descriptor(input_stage + piece * kPiece * 16, plane, 128),
                                           block_descriptor(weights, kColumns * 16, 128), plane, sums);
        mma_wait<0>();
        hold_sums(sums);

        const uint32_t first = piece * kPiece + warp * 16 + g, channels = column_tile * kColumns;
        const auto store = [&](uint32_t half, uint32_t channel, auto& x) {
          const uint32_t pixel = halo_result(call, tile, first + 8 * half);
          if (pixel == kNoPixel || channel >= call.shape.out_c) return;
          store_sums(call.out, call.rounder, uint64_t{pixel} * call.shape.out_c + channel, x, seen);
        };
        if constexpr (kColumns == 16) {
          // A thread has four neighbouring channels of two rows. Two threads exchange halves: one
          // then has eight channels of the first row, the other eight of the second.
          const bool odd = t % 2 != 0;
          float x[8];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float up = sums[4 * (i / 2) + i % 2], down = sums[4 * (i / 2) + 2 + i % 2];
            const float other = __shfl_xor_sync(0xFFFFFFFFu, odd ? up : down, 1);
            x[i] = odd ? other : up;
            x[4 + i] = odd ? down : other;
          }
          store(odd ? 1 : 0, channels + t / 2 * 8, x);
        } else {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float x[kColumns / 4];
#pragma unroll
            for (int i = 0; i < kColumns / 4; ++i) x[i] = sums[4 * (i / 2) + 2 * half + i % 2];
            store(half, channels + t * (kColumns / 4), x);
          }
        }
      }
    }
    if (!more) break;
    now = next;
    next += gridDim.x / tiling.column_tiles;
    input_stage = next_input;
    next_input = next_input == base ? base + input_bytes : base;
    // The next tile has arrived, and the previous one has been read.
    __syncthreads();
  }
  // Once per block: blocks finish together, and each atomic waits for those before it.
  report(seen, call.out.stats);
}

template <OperandFeed feed, int kColumns, int kChannels>
void start_tile(const IgemmCall& call, Stream stream) {
  auto* kernel = halo_kernel<feed, kColumns, kChannels>;
#if defined(__CUDACC__)
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kHaloShared);
  (void)allowed;
#endif
  launch(kernel, {call.tiling.grid, kHaloThreads, call.tiling.shared}, stream, call);
}

template <OperandFeed feed, int kColumns>
void start_channels(const IgemmCall& call, Stream stream) {
  switch (call.tiling.channels) {
    case 16:
      return start_tile<feed, kColumns, 16>(call, stream);
    case 32:
      return start_tile<feed, kColumns, 32>(call, stream);
    default:
      return start_tile<feed, kColumns, 64>(call, stream);
  }
}

template <OperandFeed feed>
void start_columns(const IgemmCall& call, Stream stream) {
  switch (call.tiling.columns) {
    case 16:
      return start_channels<feed, 16>(call, stream);
    case 32:
      return start_channels<feed, 32>(call, stream);
    default:
      return start_channels<feed, 64>(call, stream);
  }
}

}  // namespace

void start_halo(const IgemmCall& call, OperandFeed feed, Stream stream) {
  feed == OperandFeed::bf16 ? start_columns<OperandFeed::bf16>(call, stream)
                            : start_columns<OperandFeed::bf16_from_8>(call, stream);
}

}  // namespace ulp::cuda
