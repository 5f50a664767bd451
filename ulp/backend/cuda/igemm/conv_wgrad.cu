// The wgrad kernel of conv_wgrad.h with bf16 products.
#include "ulp/backend/cuda/igemm/conv_wgrad.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/igemm/conv_igemm_launch.h"
#include "ulp/backend/cuda/igemm/conv_wgrad_kernel.h"

namespace ulp::cuda {
namespace {

// Converts 16 bytes of a gradient's pixel from codes to bf16 and stores them in the tensor core's
// layout: core matrices of eight pixels by eight channels.
template <int kOutBytes, int kOutputs>
__device__ inline void convert_gradient(const GradCall& call, uint32_t from, uint32_t to, uint32_t pixel,
                                        uint32_t piece) {
  uint32_t word[4];
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(from + swizzled<kOutputs * kOutBytes>(pixel, piece)));
  const auto put = [&](uint32_t eight, const uint32_t(&two)[4]) {
    const uint32_t at = to + ((pixel / 8) * (kOutputs / 8) + eight) * 128 + pixel % 8 * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(two[0]), "r"(two[1]), "r"(two[2]),
                 "r"(two[3])
                 : "memory");
  };
  if constexpr (kOutBytes == 2) {
    put(piece, word);
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t two[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t codes = word[2 * half + i / 2];
        const uint32_t placed = (i % 2 == 0 ? two_signed<0x9180>(codes) : two_signed<0xB3A2>(codes))
                                    << call.out_shift &
                                call.out_mask;
        two[i] = lifted(lifted(placed, call.lift[0]), call.lift[1]);
      }
      put(2 * piece + half, two);
    }
  }
}

template <int kInBytes, int kOutBytes, int kInputs, int kOutputs>
__global__ void __launch_bounds__(kGradThreads, grad_shares(kInputs, kOutputs, false) ? 2 : 1)
    grad_kernel(const __grid_constant__ CUtensorMap in_map, const __grid_constant__ CUtensorMap out_map,
                const __grid_constant__ GradCall call) {
  using Block = GradBlock<kInBytes, kOutBytes, kInputs, kOutputs, 2>;
  constexpr bool kShares = grad_shares(kInputs, kOutputs, false);
  constexpr int kUnits = Block::kUnits, kBlocks = Block::kBlocks, kSteps = kGradPixels / 16;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Block block(call, memory);

  if (threadIdx.x >= kSummers) {
    fewer_registers<kShares ? 40 : 56>();
    block.serve(in_map, out_map, [&](uint32_t from, uint32_t to, uint32_t worker) {
      constexpr uint32_t kPieces = Block::kOutRow / 16;
      for (uint32_t i = worker; i < kGradPixels * kPieces; i += Block::kConverters) {
        convert_gradient<kOutBytes, kOutputs>(call, from, to, i % kGradPixels, i / kGradPixels);
      }
    });
    return;
  }

  more_registers<kShares ? 72 : 152>();
  const uint32_t group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (group >= call.shape.rows) return block.pass_tiles(lane);
  typename Block::Tap tap[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) tap[b] = block.tap_of(group, block.row_moved(group), warp, b);
  Ring stage{0, 0}, copy{0, 0};
  float sums[kBlocks][kOutputs / 2] = {};
  uint32_t a[kSteps][4];
  uint32_t before = Block::kCopies;  // the gradient buffer of the previous tile
  for (uint32_t tile = block.begin; tile < block.end; ++tile) {
    barrier_wait(block.full + 8 * stage.at, stage.phase);
    const uint32_t at = block.base + stage.at * block.stage_bytes;
    const uint32_t gradient = block.copies + copy.at * Block::kCopyBytes;
    // Table entries of the pixels whose rows this lane addresses in ldmatrix: 32 pixels per load
    // for 8-bit codes, 16 otherwise.
    constexpr int kLoads = kInBytes == 1 ? kGradPixels / 32 : kGradPixels / 16;
    uint32_t entry[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      entry[i] = block.entry_of(stage.at, kInBytes == 1 ? 32 * i + lane : 16 * i + lane / 16 * 8 + lane % 8);
    }
    uint32_t raw[kLoads][4];
    const auto fetch = [&](int b, uint32_t(&to)[kLoads][4]) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const uint32_t unit = (4 * b + warp) % kUnits, half = kInBytes == 1 ? 0 : lane / 8 % 2;
        load_turned(block.codes_at(at, entry[i], tap[b], unit * kInBytes + half), to[i]);
      }
    };
    if constexpr (kInBytes == 1) fetch(0, raw);
    barrier_wait(block.ready + 8 * copy.at, copy.phase);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      // The products that read these operands; the other warpgroups multiply meanwhile.
      mma_wait<0>();
      if (b == 0 && before != Block::kCopies && lane == 0) barrier_arrive(block.used + 8 * before);
      if constexpr (kInBytes == 1) {
        // A register has two pixels of two channels: the first channel is one row, the second the
        // row eight below.
#pragma unroll
        for (int i = 0; i < 4 * kLoads; ++i) {
          a[i / 2][2 * (i % 2)] = two_signed<0xA280>(raw[i / 4][i % 4]) << call.in_shift & call.in_mask;
          a[i / 2][2 * (i % 2) + 1] = two_signed<0xB391>(raw[i / 4][i % 4]) << call.in_shift & call.in_mask;
        }
        hold_operands(a);
        if (b + 1 < kBlocks) fetch(b + 1, raw);
      } else {
        fetch(b, a);
      }
      mma_fence();
      const uint64_t right = block_descriptor(gradient, kOutputs * 16, 128);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        MmaTurned<kOutputs>::run(sums[b], a[step], right + ((step * 2 * kOutputs * 16) >> 4));
      }
      mma_commit();
    }
    barrier_arrive(block.empty + 8 * stage.at);
    before = copy.at;
    stage.advance(block.stages);
    copy.advance(Block::kCopies);
  }
  mma_wait<0>();
  block.template write_sums<false>([&](int b, int i) { return sums[b][i]; }, group, warp, lane);
}

template <int kInBytes, int kOutBytes>
struct Bf16Kernels {
  template <int kInputs, int kOutputs>
  static auto* of() {
    return grad_kernel<kInBytes, kOutBytes, kInputs, kOutputs>;
  }
};

}  // namespace

void start_grad(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  if (call.in_bytes == 1 && call.out_bytes == 1)
    return start_grad_kernel<Bf16Kernels<1, 1>>(in, grad, call, stream);
  if (call.out_bytes == 1) return start_grad_kernel<Bf16Kernels<2, 1>>(in, grad, call, stream);
  start_grad_kernel<Bf16Kernels<2, 2>>(in, grad, call, stream);
}

}  // namespace ulp::cuda
