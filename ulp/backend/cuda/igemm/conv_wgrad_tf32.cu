// The wgrad kernels of conv_wgrad.h with tf32 products. From shared memory the tensor core takes
// tf32 only with pixels contiguous, so gradients are transposed while they are converted. The order
// of a product's eight pixels along the k axis is free as long as both operands agree: of the two
// neighbours that thread t holds, the first is step t, the second step t + 4.
#include <cuda.h>
#include <cuda_runtime.h>

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/igemm/conv_igemm_launch.h"
#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/cuda/igemm/conv_wgrad_kernel.h"

namespace ulp::cuda {
namespace {

// Two 16-bit codes to fp32: an arithmetic shift replicates the sign above the code, and the mask
// leaves one.
__device__ inline void decode_two(uint32_t codes, uint32_t shift, uint32_t mask, float factor, uint32_t& low,
                                  uint32_t& high) {
  const auto placed = [&](uint32_t top) {
    return bits_float(static_cast<uint32_t>(static_cast<int32_t>(top) >> shift) & mask);
  };
  low = float_bits(placed(codes << 16) * factor);
  high = float_bits(placed(codes) * factor);
}

// Four 8-bit codes: two pixels of two channels. They become bf16 first, which is the upper half of
// fp32.
__device__ inline void decode_four(uint32_t codes, uint32_t shift, uint32_t mask, uint32_t factors,
                                   uint32_t (&a)[4]) {
  const uint32_t even = lifted(two_signed<0xA280>(codes) << shift & mask, factors),
                 odd = lifted(two_signed<0xB391>(codes) << shift & mask, factors);
  a[0] = even << 16;
  a[1] = odd << 16;
  a[2] = even & 0xFFFF0000u;
  a[3] = odd & 0xFFFF0000u;
}

__device__ inline void put_word(uint32_t at, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
}

// Converts a tile's gradients. Core matrices are eight channels by four k steps, in the order of
// the lanes: a warp writes one core matrix at a time, without bank conflicts.
template <class Block, int kOutBytes, int kOutputs>
__device__ __forceinline__ void convert_tile(const GradCall& call, uint32_t from, uint32_t to,
                                             uint32_t worker) {
  // Pixels per load of 16 channels.
  constexpr uint32_t kRow = kOutputs * kOutBytes, kSpan = 32 / kOutBytes;
  constexpr uint32_t kLoads = kGradPixels / kSpan * (kOutputs / 16), kWarps = Block::kConverters / 32;
  constexpr uint32_t kHalf = kOutputs * 16;  // bytes of four k steps
  const uint32_t lane = worker % 32;
#pragma unroll 2
  for (uint32_t i = worker / 32; i < kLoads; i += kWarps) {
    const uint32_t span = i / (kOutputs / 16), sixteen = i % (kOutputs / 16);
    uint32_t codes[4];
    if constexpr (kOutBytes == 2) {
      const uint32_t pixel = kSpan * span + lane / 16 * 8 + lane % 8;
      load_turned(from + swizzled<kRow>(pixel, 2 * sixteen + lane / 8 % 2), codes);
    } else {
      load_turned(from + swizzled<kRow>(kSpan * span + lane, sixteen), codes);
    }
    const uint32_t at = to + span * (kSpan / 8) * 2 * kHalf + sixteen * 256 + lane * 4;
#pragma unroll
    for (uint32_t m = 0; m < 4; ++m) {
      if constexpr (kOutBytes == 2) {
        // Order of matrices: eight pixels by eight channels, the next channels, then the next
        // pixels.
        const uint32_t own = at + m / 2 * 2 * kHalf + m % 2 * 128;
        uint32_t low, high;
        decode_two(codes[m], call.out_shift, call.out_mask, call.out_factor, low, high);
        put_word(own, low);
        put_word(own + kHalf, high);
      } else {
        // Matrices of eight pixels by sixteen channels. A thread's two channels go eight columns
        // apart.
        const uint32_t own = at + m * 2 * kHalf;
        uint32_t word[4];
        decode_four(codes[m], call.out_shift, call.out_mask, call.lift[1], word);
        put_word(own, word[0]);
        put_word(own + 128, word[1]);
        put_word(own + kHalf, word[2]);
        put_word(own + kHalf + 128, word[3]);
      }
    }
  }
}

// Decodes 32 input pixels by sixteen channels per warp.
template <int kInBytes>
__device__ __forceinline__ void decode_pixels(const GradCall& call, const uint32_t (&codes)[kInBytes][4],
                                              uint32_t (&a)[4][4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if constexpr (kInBytes == 1) {
      // A register has two pixels of two channels: the first channel is one row, the second the row
      // eight below.
      decode_four(codes[0][step], call.in_shift, call.in_mask, call.lift[0], a[step]);
    } else {
      // Or two pixels of one channel; the next register has the channel eight below.
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        decode_two(codes[step / 2][step % 2 * 2 + row], call.in_shift, call.in_mask, call.in_factor,
                   a[step][row], a[step][2 + row]);
      }
    }
  }
}

template <int kInBytes, int kOutBytes, int kInputs, int kOutputs>
__global__ void __launch_bounds__(kGradThreads, 1)
    grad_tf32_kernel(const __grid_constant__ CUtensorMap in_map, const __grid_constant__ CUtensorMap out_map,
                     const __grid_constant__ GradCall call) {
  using Block = GradBlock<kInBytes, kOutBytes, kInputs, kOutputs, 4>;
  constexpr int kUnits = Block::kUnits, kBlocks = Block::kBlocks;
  // Operands of one half tile are made while the tensor core reads those of the other half.
  constexpr int kSteps = kGradPixels / 8 / 2, kLoads = kInBytes;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Block block(call, memory);

  if (threadIdx.x >= kSummers) {
    fewer_registers<32>();
    block.serve(in_map, out_map, [&](uint32_t from, uint32_t to, uint32_t worker) {
      convert_tile<Block, kOutBytes, kOutputs>(call, from, to, worker);
    });
    return;
  }

  more_registers<160>();
  const uint32_t group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (group >= call.shape.rows) return block.pass_tiles(lane);
  const uint32_t by_row = block.row_moved(group);
  Ring stage{0, 0}, copy{0, 0};
  float sums[kBlocks][kOutputs / 2] = {};
  uint32_t a[2][kSteps][4];
  for (uint32_t tile = block.begin; tile < block.end; ++tile) {
    barrier_wait(block.full + 8 * stage.at, stage.phase);
    const uint32_t at = block.base + stage.at * block.stage_bytes;
    // Table entries of the pixels whose rows this lane addresses in ldmatrix: 32 pixels per load
    // for 8-bit codes, 16 otherwise.
    uint32_t entry[2][kLoads];
#pragma unroll
    for (int i = 0; i < 2 * kLoads; ++i) {
      entry[i / kLoads][i % kLoads] =
          block.entry_of(stage.at, kInBytes == 1 ? 32 * i + lane : 16 * i + lane / 16 * 8 + lane % 8);
    }
    uint32_t codes[kLoads][4];
    const auto fetch = [&](int b, int half) {
      const uint32_t unit = (4 * b + warp) % kUnits, part = kInBytes == 1 ? unit : 2 * unit + lane / 8 % 2;
      const typename Block::Tap tap = block.tap_of(group, by_row, warp, b);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        load_turned(block.codes_at(at, entry[half][i], tap, part), codes[i]);
      }
    };
    fetch(0, 0);
    barrier_wait(block.ready + 8 * copy.at, copy.phase);
    // Equal in all lanes; the shuffle tells the compiler, so that it uses a uniform register.
    const uint32_t gradient = __shfl_sync(0xFFFFFFFFu, block.copies + copy.at * Block::kCopyBytes, 0);
    const uint64_t right = block_descriptor(gradient, kOutputs * 16, 128);
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int b = i / 2, half = i % 2;
      if (half == 0 && b > 0 && 4 * b >= kUnits * static_cast<int>(call.shape.columns)) break;
      if (i >= 2) mma_wait<1>();  // the products that read this half's operands
      decode_pixels<kInBytes>(call, codes, a[half]);
      hold_operands(a[half]);
      mma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Mma<kOutputs, MmaType::tf32>::run(sums[b], a[half][step],
                                          right + (((half * kSteps + step) * 2 * kOutputs * 16) >> 4), 1);
      }
      mma_commit();
      if (i + 1 < 2 * kBlocks) fetch((i + 1) / 2, (i + 1) % 2);
    }
    barrier_arrive(block.empty + 8 * stage.at);
    mma_wait<0>();
    if (lane == 0) barrier_arrive(block.used + 8 * copy.at);
    stage.advance(block.stages);
    copy.advance(Block::kCopies);
  }
  block.template write_sums<kOutBytes == 1>([&](int b, int i) { return sums[b][i]; }, group, warp, lane);
}

template <int kInBytes, int kOutBytes>
struct Tf32Kernels {
  template <int kInputs, int kOutputs>
  static auto* of() {
    return grad_tf32_kernel<kInBytes, kOutBytes, kInputs, kOutputs>;
  }
};
}  // namespace

void start_grad_tf32(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  if (call.in_bytes == 1) return start_grad_kernel<Tf32Kernels<1, 2>>(in, grad, call, stream);
  if (call.out_bytes == 1) return start_grad_kernel<Tf32Kernels<2, 1>>(in, grad, call, stream);
  start_grad_kernel<Tf32Kernels<2, 2>>(in, grad, call, stream);
}

}  // namespace ulp::cuda
