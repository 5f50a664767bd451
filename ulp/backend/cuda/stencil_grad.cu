#include "ulp/backend/cuda/stencil_grad.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include "ulp/backend/cuda/codec.h"
#include "ulp/backend/cuda/launch.h"
#include "ulp/backend/cuda/stencil_device.h"
#include "ulp/backend/cuda/stencil_launch.h"

namespace ulp::cuda {
namespace {

// Three warpgroups multiply, one for each row of taps; one copies.
constexpr int kGroups = 3, kSummers = 128 * kGroups, kGradThreads = kSummers + 128;
constexpr uint32_t kConverters = 64;  // threads that make them

// Where 16 bytes of a row lie that the copy engine has swizzled.
template <uint32_t kRowBytes>
__device__ inline uint32_t swizzled(uint32_t row, uint32_t piece) {
  constexpr uint32_t kPieces = kRowBytes / 16;  // of a row; 8 of them pass all banks
  const uint32_t turn = kPieces == 1 ? 0 : (row / (8 / kPieces)) % kPieces;
  return row * kRowBytes + ((piece ^ turn) << 4);
}

__device__ inline uint32_t lifted(uint32_t two, uint32_t factor) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(two), "r"(factor));
  return product;
}

// 16 bytes of a gradient's pixel, from codes to bf16, to where the tensor core reads them: pieces of eight pixels by eight channels.
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

__device__ inline void load_turned(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

template <int kInBytes, int kOutBytes, int kInputs, int kOutputs>
__global__ void __launch_bounds__(kGradThreads, 1)
    grad_kernel(const __grid_constant__ CUtensorMap in_map, const __grid_constant__ CUtensorMap out_map,
                const __grid_constant__ GradCall call) {
  constexpr uint32_t kInRow = kInputs * kInBytes, kOutRow = kOutputs * kOutBytes;
  constexpr uint32_t kCopyBytes = kGradPixels * kOutputs * 2;
  // Sixteen channels under one tap are a warp's rows of a product, four warps' a product's.
  constexpr int kUnits = kInputs / 16, kBlocks = (3 * kUnits + 3) / 4, kSteps = kGradPixels / 16;
  extern __shared__ __align__(1024) uint8_t memory[];
  const StencilShape& shape = call.shape;
  const GradTiling& tiling = call.tiling;
  const uint32_t stages = tiling.stages;
  const uint32_t in_bytes = (tiling.slab_rows * kInRow + 1023) / 1024 * 1024;
  constexpr uint32_t kGradBytes = (kGradPixels * kOutRow + 1023) / 1024 * 1024;
  const uint32_t stage_bytes = in_bytes + kGradBytes;
  const uint32_t base = shared_address(memory);
  const uint32_t copies = base + stages * stage_bytes, tables = copies + kGradCopies * kCopyBytes;
  const uint32_t zeros = tables + stages * kGradPixels * 4, barriers = zeros + 16;
  // Stages: pixels and gradients have come; nobody reads them any more. Copies: converted; multiplied.
  const uint32_t full = barriers, empty = full + 8 * stages;
  const uint32_t ready = empty + 8 * stages, used = ready + 8 * kGradCopies;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < stages; ++i) {
      barrier_init(full + 8 * i, 2);  // the copy engine, and the warp that makes the table
      barrier_init(empty + 8 * i, kSummers / 32 + kConverters / 32);
    }
    for (uint32_t i = 0; i < kGradCopies; ++i) {
      barrier_init(ready + 8 * i, kConverters / 32);
      barrier_init(used + 8 * i, kSummers / 32);
    }
    barrier_init_done();
  }
  if (threadIdx.x < 4) reinterpret_cast<uint32_t*>(memory + (zeros - base))[threadIdx.x] = 0;
  __syncthreads();

  const uint32_t piece = blockIdx.x / (tiling.input_tiles * tiling.output_tiles);
  const uint32_t pair = blockIdx.x % (tiling.input_tiles * tiling.output_tiles);
  const uint32_t first_in = pair % tiling.input_tiles * kInputs,
                 first_out = pair / tiling.input_tiles * kOutputs;
  const uint32_t begin = piece * tiling.each;
  const uint32_t end = begin + tiling.each < tiling.tiles ? begin + tiling.each : tiling.tiles;
  const auto pixel_of = [&](uint32_t result, uint32_t& p, uint32_t& q) {
    const uint32_t image = call.area.quotient(result), rest = result - image * call.area.divisor;
    p = call.width.quotient(rest);
    q = rest - p * call.width.divisor;
    return static_cast<int32_t>((image * shape.in_h + p * shape.stride_h) * shape.in_w + q * shape.stride_w);
  };
  const auto advance = [](uint32_t& at, uint32_t& phase, uint32_t count) {
    if (++at == count) {
      at = 0;
      phase ^= 1;
    }
  };

  if (threadIdx.x >= kSummers) {
    fewer_registers<56>();
    const uint32_t thread = threadIdx.x - kSummers, lane = thread % 32;
    uint32_t stage = 0, phase = 1;
    if (thread == 0) {
      for (uint32_t tile = begin; tile < end; ++tile) {
        uint32_t p, q;
        const int32_t first = pixel_of(tile * kGradPixels, p, q) + call.lowest;
        barrier_wait(empty + 8 * stage, phase);
        barrier_expect(full + 8 * stage, tiling.slab_rows * kInRow + kGradPixels * kOutRow);
        const uint32_t at = base + stage * stage_bytes;
        // A copy takes 256 rows.
        const uint32_t boxes = (tiling.slab_rows + 255) / 256, rows = tiling.slab_rows / boxes;
        for (uint32_t box = 0; box < boxes; ++box) {
          copy_box(at + box * rows * kInRow, &in_map, static_cast<int32_t>(first_in),
                   first + static_cast<int32_t>(box * rows), full + 8 * stage);
        }
        copy_box(at + in_bytes, &out_map, static_cast<int32_t>(first_out),
                 static_cast<int32_t>(tile * kGradPixels), full + 8 * stage);
        advance(stage, phase, stages);
      }
    } else if (thread >= 32 && thread < 64) {
      // Where in the slab a pixel of the output is, and which taps lie in the image.
      const auto results = static_cast<uint32_t>(shape.results());
      for (uint32_t tile = begin; tile < end; ++tile) {
        uint32_t entry[kGradPixels / 32];
        int32_t first = 0;
#pragma unroll
        for (uint32_t k = 0; k < kGradPixels / 32; ++k) {
          const uint32_t result = tile * kGradPixels + 32 * k + lane;
          uint32_t p, q;
          const int32_t pixel = pixel_of(result, p, q);
          if (k == 0) first = __shfl_sync(0xFFFFFFFFu, pixel, 0) + call.lowest;
          uint32_t across = 0, all = 0;
#pragma unroll
          for (uint32_t i = 0; i < kGradTaps; ++i) {
            const bool inside = q * shape.stride_w + static_cast<uint32_t>(shape.column[i]) < shape.in_w;
            across |= inside ? 1u << i : 0;
          }
#pragma unroll
          for (uint32_t i = 0; i < kGradTaps; ++i) {
            const bool inside = p * shape.stride_h + static_cast<uint32_t>(shape.row[i]) < shape.in_h;
            all |= inside ? across << (16 + 3 * i) : 0;
          }
          // Taps that there are not are asked for by nobody.
          entry[k] = result < results ? static_cast<uint32_t>(pixel - first) | all : 0;
        }
        barrier_wait(empty + 8 * stage, phase);
#pragma unroll
        for (uint32_t k = 0; k < kGradPixels / 32; ++k) {
          reinterpret_cast<uint32_t*>(memory + (tables - base))[stage * kGradPixels + 32 * k + lane] =
              entry[k];
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(full + 8 * stage);
        advance(stage, phase, stages);
      }
    } else if (thread >= 128 - kConverters) {
      constexpr uint32_t kPieces = kOutRow / 16;
      uint32_t copy = 0, copy_phase = 1;
      phase = 0;
      for (uint32_t tile = begin; tile < end; ++tile) {
        barrier_wait(full + 8 * stage, phase);
        barrier_wait(used + 8 * copy, copy_phase);
        for (uint32_t i = thread - (128 - kConverters); i < kGradPixels * kPieces; i += kConverters) {
          convert_gradient<kOutBytes, kOutputs>(call, base + stage * stage_bytes + in_bytes,
                                                copies + copy * kCopyBytes, i % kGradPixels, i / kGradPixels);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) {
          barrier_arrive(ready + 8 * copy);
          barrier_arrive(empty + 8 * stage);
        }
        advance(stage, phase, stages);
        advance(copy, copy_phase, kGradCopies);
      }
    }
    return;
  }

  more_registers<152>();
  const uint32_t group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const bool works = group < shape.rows;
  uint32_t stage = 0, phase = 0, copy = 0, copy_phase = 0;
  if (!works) {
    for (uint32_t tile = begin; tile < end; ++tile) {
      if (lane == 0) {
        barrier_wait(ready + 8 * copy, copy_phase);
        barrier_arrive(empty + 8 * stage);
        barrier_arrive(used + 8 * copy);
      }
      advance(stage, phase, stages);
      advance(copy, copy_phase, kGradCopies);
    }
    return;
  }
  // What a warp multiplies in each product: a column of taps and sixteen channels.
  uint32_t moved[kBlocks], bit[kBlocks];
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const uint32_t column = (4 * b + warp) / kUnits;
    const bool there = column < shape.columns;
    moved[b] = there ? static_cast<uint32_t>(shape.row[group] * static_cast<int32_t>(shape.in_w) +
                                             shape.column[column])
                     : 0;
    bit[b] = there ? 1u << (16 + 3 * group + column) : 0;
  }
  float sums[kBlocks][kOutputs / 2] = {};
  uint32_t a[kSteps][4];
  uint32_t before = kGradCopies;  // the copy of the tile before
  for (uint32_t tile = begin; tile < end; ++tile) {
    barrier_wait(full + 8 * stage, phase);
    const uint32_t at = base + stage * stage_bytes;
    const uint32_t gradient = copies + copy * kCopyBytes;
    // Pixels whose rows this lane names for loads of 32 of them (codes of 8 bits), or of 16.
    constexpr int kLoads = kInBytes == 1 ? kGradPixels / 32 : kGradPixels / 16;
    uint32_t entry[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint32_t pixel = kInBytes == 1 ? 32 * i + lane : 16 * i + lane / 16 * 8 + lane % 8;
      asm volatile("ld.shared.b32 %0, [%1];"
                   : "=r"(entry[i])
                   : "r"(tables + (stage * kGradPixels + pixel) * 4));
    }
    uint32_t raw[kLoads][4];
    const auto fetch = [&](int b, uint32_t(&to)[kLoads][4]) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        // Of a tap that is not in the image, or is none, a row of zeros.
        const uint32_t row = (entry[i] & 0xFFFFu) + moved[b];
        const uint32_t unit = (4 * b + warp) % kUnits, half = kInBytes == 1 ? 0 : lane / 8 % 2;
        load_turned((entry[i] & bit[b]) != 0 ? at + swizzled<kInRow>(row, unit * kInBytes + half) : zeros,
                    to[i]);
      }
    };
    if constexpr (kInBytes == 1) fetch(0, raw);
    barrier_wait(ready + 8 * copy, copy_phase);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      mma_wait<0>();  // what reads the operands; meanwhile the other warpgroups multiply
      if (b == 0 && before != kGradCopies && lane == 0) barrier_arrive(used + 8 * before);
      if constexpr (kInBytes == 1) {
        // A register has two pixels of two channels: the first is one row's, the second that of the row eight below.
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
      const uint64_t block = block_descriptor(gradient, kOutputs * 16, 128);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        MmaTurned<kOutputs>::run(sums[b], a[step], block + ((step * 2 * kOutputs * 16) >> 4));
      }
      mma_commit();
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + 8 * stage);
    before = copy;
    advance(stage, phase, stages);
    advance(copy, copy_phase, kGradCopies);
  }
  mma_wait<0>();

  const uint32_t taps = shape.taps(), g = lane / 4, t = lane % 4;
  float* part = call.parts + uint64_t{piece} * shape.out_c * taps * shape.in_c;
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) {
    const uint32_t column = (4 * b + warp) / kUnits, channel = first_in + (4 * b + warp) % kUnits * 16;
    if (column >= shape.columns || channel >= shape.in_c) continue;
#pragma unroll
    for (int i = 0; i < kOutputs / 4; ++i) {
      // Column i of a thread's: two rows.
      const uint32_t out = first_out + 8 * (i / 2) + 2 * t + i % 2;
      if (out >= shape.out_c) continue;
      const float low = sums[b][4 * (i / 2) + i % 2] * call.factor,
                  high = sums[b][4 * (i / 2) + 2 + i % 2] * call.factor;
      float* to = part + (uint64_t{out} * taps + group * shape.columns + column) * shape.in_c + channel;
      if constexpr (kInBytes == 1) {
        *reinterpret_cast<float2*>(to + 2 * g) = make_float2(low, high);
      } else {
        to[g] = low;
        to[g + 8] = high;
      }
    }
  }
}

template <int kInBytes, int kOutBytes, int kInputs, int kOutputs>
void start(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  auto* kernel = grad_kernel<kInBytes, kOutBytes, kInputs, kOutputs>;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
  (void)allowed;
  kernel<<<call.tiling.grid(), kGradThreads, call.tiling.shared, stream>>>(in, grad, call);
  check_launch();
}

template <int kInBytes, int kOutBytes, int kInputs>
void start_outputs(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  switch (call.tiling.outputs) {
    case 16:
      return start<kInBytes, kOutBytes, kInputs, 16>(in, grad, call, stream);
    case 32:
      return start<kInBytes, kOutBytes, kInputs, 32>(in, grad, call, stream);
    default:
      return start<kInBytes, kOutBytes, kInputs, 64>(in, grad, call, stream);
  }
}

template <int kInBytes, int kOutBytes>
void start_inputs(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  switch (call.tiling.inputs) {
    case 16:
      return start_outputs<kInBytes, kOutBytes, 16>(in, grad, call, stream);
    case 32:
      return start_outputs<kInBytes, kOutBytes, 32>(in, grad, call, stream);
    default:
      return start_outputs<kInBytes, kOutBytes, 64>(in, grad, call, stream);
  }
}

}  // namespace

void start_grad(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  if (call.in_bytes == 1 && call.out_bytes == 1) return start_inputs<1, 1>(in, grad, call, stream);
  if (call.out_bytes == 1) return start_inputs<2, 1>(in, grad, call, stream);
  start_inputs<2, 2>(in, grad, call, stream);
}

}  // namespace ulp::cuda
