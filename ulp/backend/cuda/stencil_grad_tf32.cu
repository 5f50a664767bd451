// The kernels of stencil_grad.h whose operands are multiplied as tf32. The tensor core takes tf32 from shared memory only with pixels as
// neighbours, so that gradients are turned where they are converted. Which of a product's eight pixels is which step of the inner
// axis is free as long as both sides agree: of the two neighbours that a thread has, the first of thread t is step t, the second t + 4.
#include <cuda.h>
#include <cuda_runtime.h>

#include "ulp/backend/cuda/codec.h"
#include "ulp/backend/cuda/stencil_grad.h"
#include "ulp/backend/cuda/stencil_grad_kernel.h"
#include "ulp/backend/cuda/stencil_grad_mma.h"
#include "ulp/backend/cuda/stencil_launch.h"

namespace ulp::cuda {
namespace {

// Two codes of 16 bits, both to fp32: a shift gives copies of the sign above the code, of which the mask leaves one.
__device__ inline void decode_two(uint32_t codes, uint32_t shift, uint32_t mask, float factor, uint32_t& low,
                                  uint32_t& high) {
  const auto placed = [&](uint32_t top) {
    return bits_float(static_cast<uint32_t>(static_cast<int32_t>(top) >> shift) & mask);
  };
  low = float_bits(placed(codes << 16) * factor);
  high = float_bits(placed(codes) * factor);
}

// Four codes of 8 bits: two pixels of two channels. They are bf16 first, whose place is the upper half of fp32's.
__device__ inline void decode_four(uint32_t codes, uint32_t shift, uint32_t mask, uint32_t factors,
                                   uint32_t (&a)[4]) {
  const uint32_t even = lifted(two_signed<0xA280>(codes) << shift & mask, factors),
                 odd = lifted(two_signed<0xB391>(codes) << shift & mask, factors);
  a[0] = even << 16;
  a[1] = odd << 16;
  a[2] = even & 0xFFFF0000u;
  a[3] = odd & 0xFFFF0000u;
}

template <typename Code>
__device__ inline uint32_t load_code(uint32_t at) {
  uint32_t code;
  if constexpr (sizeof(Code) == 1) {
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(code) : "r"(at));
  } else {
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(code) : "r"(at));
  }
  return code;
}

__device__ inline void put_word(uint32_t at, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
}

// A tile's gradients. Pieces are eight channels by four steps of the inner axis, as lanes are numbered: a warp writes a piece at a time,
// to all banks.
template <class Block, int kOutBytes, int kOutputs>
__device__ __forceinline__ void convert_tile(const GradCall& call, uint32_t from, uint32_t to,
                                             uint32_t worker) {
  constexpr uint32_t kRow = kOutputs * kOutBytes, kSpan = 32 / kOutBytes;  // pixels of a load, of 16 channels
  constexpr uint32_t kLoads = kGradPixels / kSpan * (kOutputs / 16), kWarps = Block::kConverters / 32;
  constexpr uint32_t kHalf = kOutputs * 16;  // bytes of four steps
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
        // Matrices: eight pixels by eight channels, the next channels, then the next pixels.
        const uint32_t own = at + m / 2 * 2 * kHalf + m % 2 * 128;
        uint32_t low, high;
        decode_two(codes[m], call.out_shift, call.out_mask, call.out_factor, low, high);
        put_word(own, low);
        put_word(own + kHalf, high);
      } else {
        // Matrices: eight pixels by sixteen channels. A thread's two channels go eight columns apart.
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

// 32 pixels of the input, by sixteen channels each warp.
template <int kInBytes>
__device__ __forceinline__ void decode_pixels(const GradCall& call, const uint32_t (&codes)[kInBytes][4],
                                              uint32_t (&a)[4][4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if constexpr (kInBytes == 1) {
      // A register has two pixels of two channels: the first is one row's, the second that of the row eight below.
      decode_four(codes[0][step], call.in_shift, call.in_mask, call.lift[0], a[step]);
    } else {
      // Or two pixels of one channel; the next register has those of the channel eight below.
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
  using Block = GradBlock<kInBytes, kOutBytes, kInputs, kOutputs, 4, false>;
  constexpr int kUnits = Block::kUnits, kBlocks = Block::kBlocks;
  // Operands are made for half a tile while the tensor core reads those of another half.
  constexpr int kSteps = kGradPixels / 8 / 2, kLoads = kInBytes;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Block block(call, memory);

  if (threadIdx.x >= kSummers) {
    fewer_registers<32>();
    block.serve(in_map, out_map, [&](uint32_t, uint32_t from, uint32_t to, uint32_t worker) {
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
    // Pixels whose rows this lane names for loads of 32 of them (codes of 8 bits), or of 16.
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
    // All lanes have the same; the compiler is told, so that it is a uniform register.
    const uint32_t gradient = __shfl_sync(0xFFFFFFFFu, block.copies + copy.at * Block::kCopyBytes, 0);
    const uint64_t right = block_descriptor(gradient, kOutputs * 16, 128);
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int b = i / 2, half = i % 2;
      if (half == 0 && b > 0 && 4 * b >= kUnits * static_cast<int>(call.shape.columns)) break;
      if (i >= 2) mma_wait<1>();  // what reads this half's operands
      decode_pixels<kInBytes>(call, codes, a[half]);
      hold_operands(a[half]);
      mma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Mma<kOutputs, Product::tf32>::run(sums[b], a[half][step],
                                          right + (((half * kSteps + step) * 2 * kOutputs * 16) >> 4), 1);
      }
      mma_commit();
      if (i + 1 < 2 * kBlocks) fetch((i + 1) / 2, (i + 1) % 2);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(block.empty + 8 * stage.at);
    mma_wait<0>();
    if (lane == 0) barrier_arrive(block.used + 8 * copy.at);
    stage.advance(block.stages);
    copy.advance(Block::kCopies);
  }
  block.template write_sums<kOutBytes == 1>([&](int b, int i) { return sums[b][i]; }, group, warp, lane);
}

// The same with three copies side by side: the first has the gradient of the pixel after, the last that of the pixel before, 0 where that
// is in another row of the image. So gradients go to where their neighbours' are: the second of a thread's two pixels follows the first
// at the same lane; what follows it is at the next lane, and of the last one in the next eight pixels.
template <class Block, int kOutBytes, int kOutputs>
__device__ __forceinline__ void convert_wide_tile(const Block& block, uint32_t stage, uint32_t from,
                                                  uint32_t to, uint32_t worker) {
  constexpr uint32_t kRow = kOutputs * kOutBytes, kSpan = 32 / kOutBytes;  // pixels of a load, of 16 channels
  constexpr uint32_t kLoads = kGradPixels / kSpan * (kOutputs / 16), kWarps = Block::kConverters / 32;
  constexpr uint32_t kSide = kOutputs * 16, kHalf = 3 * kSide;  // bytes of four steps: of a copy, of all
  const GradCall& call = block.call;
  const uint32_t lane = worker % 32, t = lane % 4;
  const uint32_t after = t < 3 ? 4 : 2 * kHalf - 12;  // from a lane to that of the next two pixels
  const uint32_t before = t > 0 ? 0u - 4 : 0u - (2 * kHalf - 12);
#pragma unroll 1
  for (uint32_t i = worker / 32; i < kLoads; i += kWarps) {
    const uint32_t span = i / (kOutputs / 16), sixteen = i % (kOutputs / 16);
    uint32_t codes[4];
    if constexpr (kOutBytes == 2) {
      const uint32_t pixel = kGradHalo + kSpan * span + lane / 16 * 8 + lane % 8;
      load_turned(from + swizzled<kRow>(pixel, 2 * sixteen + lane / 8 % 2), codes);
    } else {
      load_turned(from + swizzled<kRow>(kGradHalo + kSpan * span + lane, sixteen), codes);
    }
    // Of which pixels the neighbours are in the same row: bits from this thread's first pixel on.
    const uint32_t first = kSpan * span + 2 * t;
    const uint32_t left = block.entry_of(stage, kGradPixels + first / 32) >> first % 32;
    const uint32_t right = block.entry_of(stage, kGradPixels + 2 + first / 32) >> first % 32;
    const uint32_t at = to + span * (kSpan / 8) * 2 * kHalf + sixteen * 256 + lane * 4;
    // Two pixels of a channel, of the eight that are `eight` after the span's first.
    const auto put = [&](uint32_t own, uint32_t eight, uint32_t low, uint32_t high) {
      const uint32_t place = span * (kSpan / 8) + eight;
      put_word(own + kSide, low);
      put_word(own + kSide + kHalf, high);
      put_word(own, (left >> (8 * eight + 1) & 1) != 0 ? high : 0);
      if (place != 0 || t != 0) put_word(own + kHalf + before, (left >> (8 * eight) & 1) != 0 ? low : 0);
      put_word(own + 2 * kSide + kHalf, (right >> (8 * eight) & 1) != 0 ? low : 0);
      if (place != kGradPixels / 8 - 1 || t != 3)
        put_word(own + 2 * kSide + after, (right >> (8 * eight + 1) & 1) != 0 ? high : 0);
    };
#pragma unroll
    for (uint32_t m = 0; m < 4; ++m) {
      if constexpr (kOutBytes == 2) {
        uint32_t low, high;
        decode_two(codes[m], call.out_shift, call.out_mask, call.out_factor, low, high);
        put(at + m / 2 * 2 * kHalf + m % 2 * 128, m / 2, low, high);
      } else {
        uint32_t word[4];
        decode_four(codes[m], call.out_shift, call.out_mask, call.lift[1], word);
        put(at + m * 2 * kHalf, m, word[0], word[2]);
        put(at + m * 2 * kHalf + 128, m, word[1], word[3]);
      }
    }
  }
  // The pixels before and after the tile, a channel each thread.
  if (worker >= kOutputs) return;
  const uint32_t column = kOutBytes == 2 ? worker : worker / 16 * 16 + worker % 16 / 2 + worker % 2 * 8;
  const auto neighbour = [&](uint32_t pixel) {
    const uint32_t byte = worker * kOutBytes;
    const uint32_t at = from + swizzled<kRow>(pixel, byte / 16) + byte % 16;
    uint32_t word[4];
    if constexpr (kOutBytes == 2) {
      decode_two(load_code<uint16_t>(at), call.out_shift, call.out_mask, call.out_factor, word[0], word[1]);
    } else {
      decode_four(load_code<uint8_t>(at), call.out_shift, call.out_mask, call.lift[1], word);
    }
    return word[0];
  };
  const bool has_before = (block.entry_of(stage, kGradPixels) & 1) != 0,
             has_after = block.entry_of(stage, kGradPixels + 3) >> 31 != 0;
  put_word(to + 2 * kSide + column * 16, has_before ? neighbour(kGradHalo - 1) : 0);
  put_word(to + (kGradPixels / 4 - 1) * kHalf + column * 16 + 12,
           has_after ? neighbour(kGradHalo + kGradPixels) : 0);
}

// For tiles that are `wide`.
template <int kInBytes, int kOutBytes, int kOutputs>
__global__ void __launch_bounds__(kGradThreads, 1)
    grad_wide_kernel(const __grid_constant__ CUtensorMap in_map, const __grid_constant__ CUtensorMap out_map,
                     const __grid_constant__ GradCall call) {
  using Block = GradBlock<kInBytes, kOutBytes, 64, kOutputs, 4, true>;
  constexpr int kSteps = kGradPixels / 8 / 2, kLoads = kInBytes, kColumns = 3 * kOutputs;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Block block(call, memory);

  if (threadIdx.x >= kSummers) {
    fewer_registers<32>();
    block.serve(in_map, out_map, [&](uint32_t stage, uint32_t from, uint32_t to, uint32_t worker) {
      convert_wide_tile<Block, kOutBytes, kOutputs>(block, stage, from, to, worker);
    });
    return;
  }

  more_registers<160>();
  const uint32_t group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if (group >= call.shape.rows) return block.pass_tiles(lane);
  // The middle tap of the row: pixels are not moved along it.
  const typename Block::Tap tap = block.tap_of(group, block.row_moved(group), warp, 1);
  const uint32_t part = kInBytes == 1 ? warp : 2 * warp + lane / 8 % 2;
  Ring stage{0, 0}, copy{0, 0};
  float sums[kColumns / 2] = {};
  uint32_t a[2][kSteps][4];
  for (uint32_t tile = block.begin; tile < block.end; ++tile) {
    barrier_wait(block.full + 8 * stage.at, stage.phase);
    const uint32_t at = block.base + stage.at * block.stage_bytes;
    uint32_t codes[kLoads][4];
    const auto fetch = [&](int half) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const uint32_t pixel = 32 * half + (kInBytes == 1 ? lane : 16 * i + lane / 16 * 8 + lane % 8);
        load_turned(block.codes_at(at, block.entry_of(stage.at, pixel), tap, part), codes[i]);
      }
    };
    fetch(0);
    barrier_wait(block.ready + 8 * copy.at, copy.phase);
    const uint32_t gradient = __shfl_sync(0xFFFFFFFFu, block.copies + copy.at * Block::kCopyBytes, 0);
    const uint64_t right = block_descriptor(gradient, kColumns * 16, 128);
    // While the tensor core reads the first half's operands, the second's are made.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      decode_pixels<kInBytes>(call, codes, a[half]);
      hold_operands(a[half]);
      mma_fence();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Mma<kColumns, Product::tf32>::run(sums, a[half][step],
                                          right + (((half * kSteps + step) * 2 * kColumns * 16) >> 4), 1);
      }
      mma_commit();
      if (half == 0) fetch(1);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(block.empty + 8 * stage.at);
    mma_wait<0>();
    if (lane == 0) barrier_arrive(block.used + 8 * copy.at);
    stage.advance(block.stages);
    copy.advance(Block::kCopies);
  }
  block.template write_sums<kOutBytes == 1>([&](int b, int i) { return sums[b * (kOutputs / 2) + i]; }, group,
                                            warp, lane);
}

template <int kInBytes, int kOutBytes>
struct Tf32Kernels {
  template <int kInputs, int kOutputs>
  static auto* of() {
    return grad_tf32_kernel<kInBytes, kOutBytes, kInputs, kOutputs>;
  }
};
template <int kInBytes, int kOutBytes>
struct WideKernels {
  template <int, int kOutputs>
  static auto* of() {
    return grad_wide_kernel<kInBytes, kOutBytes, kOutputs>;
  }
};

template <int kInBytes, int kOutBytes>
void start_tf32(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  if (call.tiling.wide)
    return start_grad_outputs<WideKernels<kInBytes, kOutBytes>, 64>(in, grad, call, stream);
  start_grad_kernel<Tf32Kernels<kInBytes, kOutBytes>>(in, grad, call, stream);
}

}  // namespace

void start_grad_tf32(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  if (call.in_bytes == 1) return start_tf32<1, 2>(in, grad, call, stream);
  if (call.out_bytes == 1) return start_tf32<2, 1>(in, grad, call, stream);
  start_tf32<2, 2>(in, grad, call, stream);
}

}  // namespace ulp::cuda
