#include "ulp/backend/cuda/conv/pointwise.h"
#include "ulp/backend/cuda/conv/pointwise_device.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kChannels = 64;  // of a warp, on either side

// Sixteen pixels of sixteen channels: a lane's two channels of four pixels, transposed so that a
// register has two pixels of one channel.
struct Turned {
  uint32_t even[2], odd[2];
};
template <int kBytes>
__device__ inline Turned load_turned(const PointCodes& codes, const uint8_t* at, uint32_t row) {
  Turned made;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint8_t *first = at + 8 * half * row, *second = first + row;
    if constexpr (kBytes == 2) {
      const uint32_t low = *reinterpret_cast<const uint32_t*>(first),
                     high = *reinterpret_cast<const uint32_t*>(second);
      made.even[half] = __byte_perm(low, high, 0x5410);
      made.odd[half] = __byte_perm(low, high, 0x7632);
    } else {
      const uint32_t four = __byte_perm(*reinterpret_cast<const uint16_t*>(first),
                                        *reinterpret_cast<const uint16_t*>(second), 0x5410);
      made.even[half] = lifted_halves(signed_halves<0xA280>(four) << codes.shift & codes.mask, codes.lift);
      made.odd[half] = lifted_halves(signed_halves<0xB391>(four) << codes.shift & codes.mask, codes.lift);
    }
  }
  return made;
}

template <int kInBytes, int kGradBytes>
__global__ void __launch_bounds__(kPointGradThreads, 1) point_grad_kernel(ULP_TABLE(PointGradCall) call) {
  ULP_SHARED(uint8_t, memory);
  const PointGradTiling& tiling = call.tiling;
  const uint32_t in_row = call.in_c * kInBytes, grad_row = call.out_c * kGradBytes;
  const uint32_t in_bytes = tiling.pixels * in_row, grad_bytes = tiling.pixels * grad_row;
  const uint32_t stages = tiling.stages, stage_bytes = in_bytes + grad_bytes;
  const uint32_t blocks = tiling.blocks_out * tiling.blocks_in, piece = blockIdx.x / blocks,
                 block = blockIdx.x % blocks;
  const uint32_t begin = piece * tiling.each;
  const uint32_t end = begin + tiling.each < tiling.tiles ? begin + tiling.each : tiling.tiles;
  const auto fetch = [&](uint32_t tile, uint32_t stage) {
    if (tile < end) {
      const uint32_t first = tile * tiling.pixels;
      const uint64_t left = call.pixels - first;
      uint8_t* to = memory + stage * stage_bytes;
      copy_tile(to, call.in + uint64_t{first} * in_row, in_bytes, left * in_row);
      copy_tile(to + in_bytes, call.grad + uint64_t{first} * grad_row, grad_bytes, left * grad_row);
    }
    copy_commit();
  };
  for (uint32_t stage = 0; stage + 1 < stages; ++stage) fetch(begin + stage, stage);

  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t squares = tiling.warps_out * tiling.warps_in, square = warp % squares,
                 slice = warp / squares;
  const uint32_t first_out =
      (block / tiling.blocks_in * tiling.warps_out + square / tiling.warps_in) * kChannels;
  const uint32_t first_in =
      (block % tiling.blocks_in * tiling.warps_in + square % tiling.warps_in) * kChannels;
  const bool works = first_out < call.out_c && first_in < call.in_c;
  // For [m][j][2 * half + i] the gradient's channel is 16 m + 2 g + half, the input's 16 (j / 2) +
  // 4 t + 2 i + j % 2. Sums of channels that do not exist are garbage and never read.
  float sums[4][8][4] = {};
  uint32_t stage = 0;
  for (uint32_t tile = begin; tile < end; ++tile) {
    wait_stage(stages);
    __syncthreads();
    // The previous stage is no longer read.
    fetch(tile + stages - 1, stage == 0 ? stages - 1 : stage - 1);
    if (works) {
      const uint8_t* const in = memory + stage * stage_bytes + (first_in + 2 * g) * kInBytes;
      const uint8_t* const grad = memory + stage * stage_bytes + in_bytes + (first_out + 2 * g) * kGradBytes;
      for (uint32_t pixel = 16 * slice; pixel < tiling.pixels; pixel += 16 * tiling.slices) {
        const uint32_t own = pixel + 2 * t;
        uint32_t a[4][4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const Turned turned =
              load_turned<kGradBytes>(call.grad_codes, grad + own * grad_row + 16 * m * kGradBytes, grad_row);
          a[m][0] = turned.even[0];
          a[m][1] = turned.odd[0];
          a[m][2] = turned.even[1];
          a[m][3] = turned.odd[1];
        }
        uint32_t b[4][4];
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          const Turned turned =
              load_turned<kInBytes>(call.in_codes, in + own * in_row + 16 * pair * kInBytes, in_row);
          b[pair][0] = turned.even[0];
          b[pair][1] = turned.even[1];
          b[pair][2] = turned.odd[0];
          b[pair][3] = turned.odd[1];
        }
        multiply_step(sums, a, b);
      }
    }
    stage = stage + 1 == stages ? 0 : stage + 1;
  }

  // Slices that share pixels combine their sums: half of them add to the other half, repeatedly.
  auto* const room = reinterpret_cast<float*>(memory);
  copy_wait<0>();
  __syncthreads();
  for (uint32_t half = tiling.slices / 2; half > 0; half /= 2) {
    if (slice >= half && slice < 2 * half) {
      float* to = room + ((slice - half) * squares + square) * (kChannels * kChannels) + lane;
#pragma unroll
      for (int i = 0; i < 128; ++i) to[32 * i] = sums[i / 32][i / 4 % 8][i % 4];
    }
    __syncthreads();
    if (slice < half) {
      const float* from = room + (slice * squares + square) * (kChannels * kChannels) + lane;
#pragma unroll
      for (int i = 0; i < 128; ++i) sums[i / 32][i / 4 % 8][i % 4] += from[32 * i];
    }
    __syncthreads();
  }
  if (!works || slice != 0) return;
  float* const part = call.parts + uint64_t{piece} * call.out_c * call.in_c;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t out = first_out + 16 * m + 2 * g + half;
      if (out >= call.out_c) continue;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t in = first_in + 16 * pair + 4 * t + 2 * i;
          if (in >= call.in_c) continue;
          *reinterpret_cast<uint2*>(part + uint64_t{out} * call.in_c + in) = make_uint2(
              float_bits(sums[m][2 * pair][2 * half + i]), float_bits(sums[m][2 * pair + 1][2 * half + i]));
        }
      }
    }
  }
}

template <int kInBytes, int kGradBytes>
void start(const PointGradCall& call, Stream stream) {
#if defined(__CUDACC__)
  static const cudaError_t allowed =
      cudaFuncSetAttribute(point_grad_kernel<kInBytes, kGradBytes>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kPointShared));
  (void)allowed;
#endif
  launch(point_grad_kernel<kInBytes, kGradBytes>, {call.tiling.grid(), kPointGradThreads, call.tiling.shared},
         stream, call);
}

}  // namespace

void run_point_grad(const PointGradCall& call, Stream stream) {
  if (call.in_codes.bytes == 1) {
    call.grad_codes.bytes == 1 ? start<1, 1>(call, stream) : start<1, 2>(call, stream);
  } else {
    call.grad_codes.bytes == 1 ? start<2, 1>(call, stream) : start<2, 2>(call, stream);
  }
}

}  // namespace ulp::cuda
