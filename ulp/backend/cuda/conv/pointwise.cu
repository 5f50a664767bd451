#include "ulp/backend/cuda/conv/pointwise.h"

#include "ulp/backend/cuda/conv/pointwise_device.h"
#include "ulp/backend/cuda/igemm/epilogue.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

// One thread per word: two neighbouring input channels of a column.
__global__ void point_weights_kernel(ULP_TABLE(PointWeights) weights) {
  const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  RangeCount seen;
  if (index < weights.chunks * weights.steps * kPointBlock) {
    const uint32_t word = index % 4, lane = index / 4 % 32, pair = index / 128 % 4,
                   block = index / kPointBlock;
    const uint32_t chunk = block / weights.steps, step = block % weights.steps;
    const uint32_t n = chunk * kPointColumns + 16 * pair + 8 * (word / 2) + lane / 4;
    const uint32_t c = step * kPointStep + 8 * (word % 2) + 2 * (lane % 4);
    float x[2] = {};
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      if (n >= weights.out_c || c + i >= weights.in_c) continue;
      const uint32_t at = weights.transposed ? (c + i) * weights.out_c + n : n * weights.in_c + c + i;
      x[i] = load_one(weights.view, *weights.state, at, seen) * weights.factor;
    }
    weights.to[index] = float_bits(x[0]) >> 16 | (float_bits(x[1]) & 0xFFFF0000u);
  }
  report(seen, weights.view.stats);
}

// Two neighbouring channels of a pixel as bf16.
template <int kInBytes>
__device__ inline uint32_t load_pair(const PointCodes& codes, const uint8_t* at) {
  if constexpr (kInBytes == 2) {
    return *reinterpret_cast<const uint32_t*>(at);
  } else {
    return signed_halves<0x9180>(*reinterpret_cast<const uint16_t*>(at)) << codes.shift & codes.mask;
  }
}

// A warp's sums: 32 pixels by 64 channels. For [m][j][2 * half + i] the pixel is 16 m + 8 half +
// lane / 4, the channel 8 j + 2 (lane % 4) + i.
using PointSums = float[2][8][4];

// The epilogue: writes codes, or fp32, into the tile of results. kOver: some values exceed the
// largest number.
template <int kOutBytes, bool kOver, typename Put>
__device__ inline void encode_quick_sums(const Rounder& rounder, const PointSums& sums, RangeCount& seen,
                                         Put put) {
  constexpr uint32_t kMagnitudes = kOutBytes == 1 ? 0x7F7Fu : 0x7FFF7FFFu;
  constexpr uint32_t kOnes = kOutBytes == 1 ? 0x0101u : 0x00010001u;
  uint32_t vanished = 0;  // set if a code became 0
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = sums[m][j][2 * half], high = sums[m][j][2 * half + 1];
        uint32_t word;
        if constexpr (kOutBytes == 1 || kOver) {
          uint32_t code[2] = {quick_code(rounder, low), quick_code(rounder, high)};
          if constexpr (kOver) {
#pragma unroll
            for (uint32_t& one : code) {
              if (one <= rounder.codec.spec.max_code) continue;
              one = rounder.codec.spec.over_code;
              ++seen.overflow;
            }
          }
          const uint32_t codes = __byte_perm(code[0], code[1], kOutBytes == 1 ? 0x0040 : 0x5410);
          const uint32_t signs =
              __byte_perm(float_bits(low), float_bits(high), kOutBytes == 1 ? 0x0073 : 0x7632);
          word = choose_bits(kMagnitudes, codes, signs);
        } else {
          word = two_codes(rounder, low, high);
        }
        const uint32_t magnitudes = word & kMagnitudes;
        vanished |= (magnitudes - kOnes) & ~magnitudes;
        put(m, j, half, word);
      }
    }
  }
  if ((vanished & ~kMagnitudes & (kOutBytes == 1 ? 0xFFFFu : 0xFFFFFFFFu)) == 0) return;
#pragma unroll
  for (int i = 0; i < 64; ++i) seen.add_vanished(sums[i / 32][i / 4 % 8][i % 4], rounder.vanishing);
}

template <int kOutBytes, typename Put>
__device__ inline void encode_point_sums(const Rounder& rounder, const PointSums& sums, RangeCount& seen,
                                         Put put) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) most = larger(most, sums[i / 32][i / 4 % 8][i % 4]);
  if (most < kShortLimit) {
    seen.add_most(most);
    if (most <= rounder.limit) {
      encode_quick_sums<kOutBytes, false>(rounder, sums, seen, put);
    } else {
      encode_quick_sums<kOutBytes, true>(rounder, sums, seen, put);
    }
    return;
  }
  // There are special values: one by one.
#pragma unroll 1
  for (int i = 0; i < 32; ++i) {
    uint32_t codes = 0;
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      float one = 0;
#pragma unroll
      for (int n = 0; n < 64; ++n) one = n == 2 * i + k ? sums[n / 32][n / 4 % 8][n % 4] : one;
      one = settle_nan(one);
      const Encoded made = encode_even(rounder.codec, float_bits(one));
      seen.add(made, float_bits(one));
      codes |= made.code << (8 * kOutBytes * k);
    }
    put(i / 16, i / 2 % 8, i % 2, codes);
  }
}

template <int kInBytes, int kOutBytes, bool kStationary>
__global__ void __launch_bounds__(kPointThreads) point_kernel(ULP_TABLE(PointCall) call) {
  ULP_SHARED(uint8_t, memory);
  const PointTiling& tiling = call.tiling;
  const uint32_t in_row = call.in_c * kInBytes, out_row = call.out_c * kOutBytes;
  const uint32_t pixels = tiling.pixels, in_bytes = pixels * in_row, out_bytes = pixels * out_row;
  const uint32_t stages = tiling.stages, steps = tiling.steps;
  // Layout of shared memory: weights, input tiles, the tile of results.
  uint8_t* const ring = memory + (kStationary ? 4 * tiling.image_words() : 0);
  uint8_t* const made = ring + stages * in_bytes;
  if constexpr (kStationary) {
    const uint32_t bytes = 4 * tiling.image_words();
    copy_tile(memory, reinterpret_cast<const uint8_t*>(call.image), bytes, bytes);
  }
  const auto fetch = [&](uint32_t tile, uint32_t stage) {
    if (tile < tiling.tiles) {
      const uint32_t first = tile * pixels;
      copy_tile(ring + stage * in_bytes, call.in + uint64_t{first} * in_row, in_bytes,
                uint64_t{call.pixels - first} * in_row);
    }
    copy_commit();
  };
  for (uint32_t stage = 0; stage + 1 < stages; ++stage) fetch(blockIdx.x + stage * gridDim.x, stage);

  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t first_row = threadIdx.x % pixels / 32 * 32 + g;  // and those 8, 16 and 24 below
  RangeCount seen;
  uint32_t stage = 0;
  for (uint32_t tile = blockIdx.x; tile < tiling.tiles; tile += gridDim.x) {
    wait_stage(stages);
    __syncthreads();
    // The previous stage is no longer read, and the tile of results has been written.
    fetch(tile + (stages - 1) * gridDim.x, stage == 0 ? stages - 1 : stage - 1);
    const uint32_t left = call.pixels - tile * pixels;
    const uint8_t* const row = ring + stage * in_bytes + first_row * in_row + 2 * t * kInBytes;

    for (uint32_t chunk = threadIdx.x / pixels; chunk < tiling.chunks; chunk += tiling.groups) {
      PointSums sums = {};
      const uint4* const block = (kStationary ? reinterpret_cast<const uint4*>(memory)
                                              : reinterpret_cast<const uint4*>(call.image)) +
                                 chunk * steps * (kPointBlock / 4) + lane;
      const auto add_step = [&](uint32_t step, uint32_t low_mask, uint32_t high_mask) {
        uint32_t b[4][4];
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          const uint4* from = block + step * (kPointBlock / 4) + 32 * pair;
          const uint4 four = kStationary ? *from : __ldg(from);
          b[pair][0] = four.x;
          b[pair][1] = four.y;
          b[pair][2] = four.z;
          b[pair][3] = four.w;
        }
        uint32_t a[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint8_t* at = row + (16 * m + 8 * half) * in_row + step * (kPointStep * kInBytes);
            a[m][half] = load_pair<kInBytes>(call.codes, at) & low_mask;
            a[m][2 + half] = load_pair<kInBytes>(call.codes, at + 8 * kInBytes) & high_mask;
          }
        }
        multiply_step(sums, a, b);
      };
      const uint32_t whole = call.in_c / kPointStep;
#pragma unroll 2
      for (uint32_t step = 0; step < whole; ++step) add_step(step, 0xFFFFFFFFu, 0xFFFFFFFFu);
      // Beyond the last channel lies the next pixel, which may be NaN, or the tile of results.
      const uint32_t rest = call.in_c % kPointStep;
      if (rest != 0) add_step(whole, 2 * t < rest ? 0xFFFFFFFFu : 0, 8 + 2 * t < rest ? 0xFFFFFFFFu : 0);

      if (call.factor != 1) {
#pragma unroll
        for (int i = 0; i < 64; ++i) sums[i / 32][i / 4 % 8][i % 4] *= call.factor;
      }
      const uint32_t column = chunk * kPointColumns + 2 * t;
      if (left < pixels || chunk * kPointColumns + kPointColumns > call.out_c) {
        // Elements that do not exist cause no range event.
#pragma unroll
        for (int i = 0; i < 64; ++i) {
          const bool there =
              first_row + 16 * (i / 32) + 8 * (i / 2 % 2) < left && column + 8 * (i / 4 % 8) < call.out_c;
          sums[i / 32][i / 4 % 8][i % 4] = there ? sums[i / 32][i / 4 % 8][i % 4] : 0;
        }
      }
      uint8_t* const to = made + first_row * out_row + column * kOutBytes;
      if constexpr (kOutBytes == 4) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const int m = i / 16, j = i / 2 % 8, half = i % 2;
          if (column + 8 * j >= call.out_c) continue;
          auto* at = reinterpret_cast<uint2*>(to + (16 * m + 8 * half) * out_row + 8 * j * kOutBytes);
          *at = make_uint2(float_bits(settle_nan(sums[m][j][2 * half])),
                           float_bits(settle_nan(sums[m][j][2 * half + 1])));
        }
      } else {
        encode_point_sums<kOutBytes>(call.rounder, sums, seen, [&](int m, int j, int half, uint32_t codes) {
          if (column + 8 * j >= call.out_c) return;
          uint8_t* at = to + (16 * m + 8 * half) * out_row + 8 * j * kOutBytes;
          if constexpr (kOutBytes == 1) {
            *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(codes);
          } else {
            *reinterpret_cast<uint32_t*>(at) = codes;
          }
        });
      }
    }
    __syncthreads();
    const uint32_t bytes = left < pixels ? left * out_row : out_bytes, whole = bytes / 16 * 16;
    uint8_t* const out = call.out.stored.codes + uint64_t{tile} * out_bytes;
    for (uint32_t at = 16 * threadIdx.x; at < whole; at += 16 * blockDim.x) {
      *reinterpret_cast<uint4*>(out + at) = *reinterpret_cast<const uint4*>(made + at);
    }
    if (whole + threadIdx.x < bytes) out[whole + threadIdx.x] = made[whole + threadIdx.x];
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  if constexpr (kOutBytes != 4) report(seen, call.out.stats);
}

template <int kInBytes, int kOutBytes, bool kStationary>
void start(const PointCall& call, Stream stream) {
#if defined(__CUDACC__)
  static const cudaError_t allowed =
      cudaFuncSetAttribute(point_kernel<kInBytes, kOutBytes, kStationary>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kPointShared));
  (void)allowed;
#endif
  launch(point_kernel<kInBytes, kOutBytes, kStationary>,
         {call.tiling.grid, call.tiling.threads(), call.tiling.shared}, stream, call);
}

template <int kInBytes, int kOutBytes>
void start_weights(const PointCall& call, Stream stream) {
  call.tiling.stationary ? start<kInBytes, kOutBytes, true>(call, stream)
                         : start<kInBytes, kOutBytes, false>(call, stream);
}

template <int kInBytes>
void start_results(const PointCall& call, Stream stream) {
  if (call.out.stored.bits == 8) {
    start_weights<kInBytes, 1>(call, stream);
  } else if (call.out.stored.bits == 16) {
    start_weights<kInBytes, 2>(call, stream);
  } else {
    start_weights<kInBytes, 4>(call, stream);
  }
}

}  // namespace

void prepare_points(const PointWeights& weights, Stream stream) {
  // Small blocks: even few weights are spread over many multiprocessors.
  constexpr uint32_t kEach = 128;
  const uint32_t words = weights.chunks * weights.steps * kPointBlock;
  launch(point_weights_kernel, {words / kEach, kEach}, stream, weights);
}

void run_points(const PointCall& call, Stream stream) {
  call.codes.bytes == 1 ? start_results<1>(call, stream) : start_results<2>(call, stream);
}

}  // namespace ulp::cuda
