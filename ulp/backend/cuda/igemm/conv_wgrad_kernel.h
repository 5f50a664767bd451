// Device code that the wgrad kernels of conv_wgrad.h share. Three consumer warpgroups multiply, one
// per row of taps. In the fourth warpgroup one thread issues the copies of pixels and gradients to
// shared memory, one warp tabulates each pixel's position and valid taps, and other warps convert
// gradients to the tensor core's layout. The kernels differ in how they convert and multiply. Only
// for files compiled for sm_90a.
#pragma once

#include <cuda.h>

#include "ulp/backend/cuda/igemm/conv_wgrad.h"
#include "ulp/backend/cuda/igemm/sm90.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {

constexpr int kGradGroups = 3, kSummers = 128 * kGradGroups, kGradThreads = kSummers + 128;

// Address of a 16-byte piece of a row after the copy engine's swizzle.
template <uint32_t kRowBytes>
__device__ inline uint32_t swizzled(uint32_t row, uint32_t piece) {
  constexpr uint32_t kPieces = kRowBytes / 16;  // per row; 8 of them span all banks
  const uint32_t turn = kPieces == 1 ? 0 : (row / (8 / kPieces)) % kPieces;
  return row * kRowBytes + ((piece ^ turn) << 4);
}

// ldmatrix, transposed: four matrices of eight rows of 16 bytes. A thread gets the same two bytes
// of two neighbouring rows.
__device__ inline void load_turned(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ inline uint32_t lifted(uint32_t two, uint32_t factor) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(two), "r"(factor));
  return product;
}

// A ring of buffers: the next one, and the parity of its mbarrier.
struct Ring {
  uint32_t at, phase;

  __device__ __forceinline__ void advance(uint32_t count) {
    if (++at == count) {
      at = 0;
      phase ^= 1;
    }
  }
};

// A block's shared memory and its share of the work. kCopied: bytes of a gradient element in the
// tensor core's layout.
template <int kInBytes, int kOutBytes, int kInputs, int kOutputs, int kCopied>
struct GradBlock {
  static constexpr uint32_t kInRow = kInputs * kInBytes, kOutRow = kOutputs * kOutBytes;
  static constexpr uint32_t kCopies = kGradCopies;
  static constexpr uint32_t kCopyBytes = kGradPixels * kOutputs * kCopied;
  static constexpr uint32_t kGradBytes = (kGradPixels * kOutRow + 1023) / 1024 * 1024;
  static constexpr uint32_t kConverters = 64;  // threads that convert gradients
  // A warp's rows of a product are sixteen channels under one tap; four warps make a product.
  static constexpr int kUnits = kInputs / 16, kBlocks = (3 * kUnits + 3) / 4;

  const GradCall& call;
  uint8_t* memory;
  uint32_t stages, in_bytes, stage_bytes;
  uint32_t base, copies, tables, zeros;
  // Barriers. Stages: `full` when pixels and gradients have arrived, `empty` when nobody reads them
  // any more. Gradient buffers: `ready` when converted, `used` when multiplied.
  uint32_t full, empty, ready, used;
  uint32_t begin, end;

  // Called by all threads.
  __device__ __forceinline__ GradBlock(const GradCall& made, uint8_t* shared) : call(made), memory(shared) {
    const GradTiling& tiling = call.tiling;
    stages = tiling.stages;
    in_bytes = (tiling.input_rows * kInRow + 1023) / 1024 * 1024;
    stage_bytes = in_bytes + kGradBytes;
    base = shared_address(memory);
    copies = base + stages * stage_bytes;
    tables = copies + kCopies * kCopyBytes;
    zeros = tables + stages * kGradPixels * 4;
    full = zeros + 16;
    empty = full + 8 * stages;
    ready = empty + 8 * stages;
    used = ready + 8 * kCopies;
    if (threadIdx.x == 0) {
      for (uint32_t i = 0; i < stages; ++i) {
        barrier_init(full + 8 * i, 1 + 32);  // the copy engine, and the warp that makes the table
        barrier_init(empty + 8 * i, kSummers + kConverters);
      }
      for (uint32_t i = 0; i < kCopies; ++i) {
        barrier_init(ready + 8 * i, kConverters);
        barrier_init(used + 8 * i, kSummers / 32);
      }
      barrier_init_done();
    }
    if (threadIdx.x < 4) reinterpret_cast<uint32_t*>(memory + (zeros - base))[threadIdx.x] = 0;
    __syncthreads();

    begin = piece() * tiling.each;
    end = begin + tiling.each < tiling.tiles ? begin + tiling.each : tiling.tiles;
  }

  // The piece of the batch, and the block's first channels.
  __device__ __forceinline__ uint32_t piece() const {
    return blockIdx.x / (call.tiling.input_tiles * call.tiling.output_tiles);
  }
  __device__ __forceinline__ uint32_t first_in() const {
    return blockIdx.x % call.tiling.input_tiles * kInputs;
  }
  __device__ __forceinline__ uint32_t first_out() const {
    return blockIdx.x / call.tiling.input_tiles % call.tiling.output_tiles * kOutputs;
  }

  __device__ __forceinline__ int32_t pixel_of(uint32_t result, uint32_t& p, uint32_t& q) const {
    const IgemmShape& shape = call.shape;
    const uint32_t image = call.area.quotient(result), rest = result - image * call.area.divisor;
    p = call.width.quotient(rest);
    q = rest - p * call.width.divisor;
    return static_cast<int32_t>((image * shape.in_h + p * shape.stride_h) * shape.in_w + q * shape.stride_w);
  }

  // Called by one thread.
  __device__ __forceinline__ void copy_tiles(const CUtensorMap& in_map, const CUtensorMap& out_map) const {
    const uint32_t input_rows = call.tiling.input_rows;
    // A copy takes at most 256 rows.
    const uint32_t boxes = (input_rows + 255) / 256, rows = input_rows / boxes;
    Ring stage{0, 1};
    for (uint32_t tile = begin; tile < end; ++tile) {
      uint32_t p, q;
      const int32_t first = pixel_of(tile * kGradPixels, p, q) + call.lowest;
      barrier_wait(empty + 8 * stage.at, stage.phase);
      const uint32_t come = full + 8 * stage.at, at = base + stage.at * stage_bytes;
      barrier_expect(come, input_rows * kInRow + kGradPixels * kOutRow);
      for (uint32_t box = 0; box < boxes; ++box) {
        copy_box(at + box * rows * kInRow, &in_map, static_cast<int32_t>(first_in()),
                 first + static_cast<int32_t>(box * rows), come);
      }
      copy_box(at + in_bytes, &out_map, static_cast<int32_t>(first_out()),
               static_cast<int32_t>(tile * kGradPixels), come);
      stage.advance(stages);
    }
  }

  // Tabulates for each output pixel its position in the input stage and which taps lie inside the
  // image.
  __device__ __forceinline__ void make_tables(uint32_t lane) const {
    const IgemmShape& shape = call.shape;
    const auto results = static_cast<uint32_t>(shape.results());
    Ring stage{0, 1};
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
        // Bits of taps that do not exist are never read.
        entry[k] = result < results ? static_cast<uint32_t>(pixel - first) | all : 0;
      }
      barrier_wait(empty + 8 * stage.at, stage.phase);
      uint32_t* table = reinterpret_cast<uint32_t*>(memory + (tables - base)) + stage.at * kGradPixels;
#pragma unroll
      for (uint32_t k = 0; k < kGradPixels / 32; ++k) table[32 * k + lane] = entry[k];
      barrier_arrive(full + 8 * stage.at);
      stage.advance(stages);
    }
  }

  // convert(from, to, worker) converts a tile's gradients; workers are numbered from 0 to
  // kConverters - 1.
  template <class Convert>
  __device__ __forceinline__ void convert_tiles(uint32_t worker, const Convert& convert) const {
    Ring stage{0, 0}, copy{0, 1};
    for (uint32_t tile = begin; tile < end; ++tile) {
      barrier_wait(full + 8 * stage.at, stage.phase);
      barrier_wait(used + 8 * copy.at, copy.phase);
      convert(base + stage.at * stage_bytes + in_bytes, copies + copy.at * kCopyBytes, worker);
      proxy_fence();
      barrier_arrive(ready + 8 * copy.at);
      barrier_arrive(empty + 8 * stage.at);
      stage.advance(stages);
      copy.advance(kCopies);
    }
  }

  // All work of the fourth warpgroup.
  template <class Convert>
  __device__ __forceinline__ void serve(const CUtensorMap& in_map, const CUtensorMap& out_map,
                                        const Convert& convert) const {
    const uint32_t thread = threadIdx.x - kSummers;
    if (thread == 0) {
      copy_tiles(in_map, out_map);
    } else if (thread / 32 == 1) {
      make_tables(thread % 32);
    } else if (thread >= 128 - kConverters) {
      convert_tiles(thread - (128 - kConverters), convert);
    }
  }

  // For a warpgroup without taps: it only keeps the barriers going.
  __device__ __forceinline__ void pass_tiles(uint32_t lane) const {
    Ring stage{0, 0}, copy{0, 0};
    for (uint32_t tile = begin; tile < end; ++tile) {
      barrier_wait(ready + 8 * copy.at, copy.phase);
      barrier_arrive(empty + 8 * stage.at);
      __syncwarp();  // a lane still waiting would miss the buffer's next phase
      if (lane == 0) barrier_arrive(used + 8 * copy.at);
      stage.advance(stages);
      copy.advance(kCopies);
    }
  }

  // The tap of a warp in product b, which is one column of taps and sixteen channels. `moved` is the
  // tap's pixel offset, `bit` its bit in the table.
  struct Tap {
    uint32_t moved, bit;
  };
  __device__ __forceinline__ uint32_t row_moved(uint32_t group) const {
    return static_cast<uint32_t>(call.shape.row[group] * static_cast<int32_t>(call.shape.in_w));
  }
  __device__ __forceinline__ Tap tap_of(uint32_t group, uint32_t by_row, uint32_t warp, int b) const {
    const uint32_t column = kUnits == 4 ? b : (4 * b + warp) / kUnits;
    const bool there = column < call.shape.columns;
    return {there ? by_row + static_cast<uint32_t>(call.shape.column[column]) : 0,
            there ? 1u << (16 + 3 * group + column) : 0};
  }

  // The table entry of a pixel of a stage's tile.
  __device__ __forceinline__ uint32_t entry_of(uint32_t stage, uint32_t pixel) const {
    uint32_t entry;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(entry) : "r"(tables + (stage * kGradPixels + pixel) * 4));
    return entry;
  }

  // Address of a pixel's codes under a tap; a row of zeros if the tap is outside the image or does
  // not exist.
  __device__ __forceinline__ uint32_t codes_at(uint32_t input_stage, uint32_t entry, const Tap& tap,
                                               uint32_t part) const {
    const uint32_t there = input_stage + swizzled<kInRow>((entry & 0xFFFFu) + tap.moved, part);
    uint32_t at;  // without a branch
    asm("{.reg .pred p; setp.ne.b32 p, %1, 0; selp.b32 %0, %2, %3, p;}"
        : "=r"(at)
        : "r"(entry & tap.bit), "r"(there), "r"(zeros));
    return at;
  }

  // sums(block, i) are the thread's sums. kInterleaved: neighbouring output channels are columns
  // eight apart.
  template <bool kInterleaved, class Sums>
  __device__ __forceinline__ void write_sums(const Sums& sums, uint32_t group, uint32_t warp,
                                             uint32_t lane) const {
    const IgemmShape& shape = call.shape;
    const uint32_t taps = shape.taps(), g = lane / 4, t = lane % 4;
    const uint32_t first_channel = first_in(), first_result = first_out();
    float* part = call.parts + uint64_t{piece()} * shape.out_c * taps * shape.in_c;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const uint32_t column = (4 * b + warp) / kUnits, channel = first_channel + (4 * b + warp) % kUnits * 16;
      if (column >= shape.columns || channel >= shape.in_c) continue;
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) {
        // Column i of the thread, in its two rows.
        const uint32_t out = first_result + (kInterleaved ? 16 * (i / 4) + 2 * (2 * t + i % 2) + i / 2 % 2
                                                          : 8 * (i / 2) + 2 * t + i % 2);
        if (out >= shape.out_c) continue;
        const float low = sums(b, 4 * (i / 2) + i % 2) * call.factor,
                    high = sums(b, 4 * (i / 2) + 2 + i % 2) * call.factor;
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
};

// Launches Kernels::of<inputs, outputs>, the kernel for the call's tiling.
template <class Kernels, int kInputs, int kOutputs>
void start_grad_tile(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  auto* kernel = Kernels::template of<kInputs, kOutputs>();
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024);
  (void)allowed;
  kernel<<<call.tiling.grid(), kGradThreads, call.tiling.shared, stream>>>(in, grad, call);
  check_launch();
}

template <class Kernels, int kInputs>
void start_grad_outputs(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  switch (call.tiling.outputs) {
    case 16:
      return start_grad_tile<Kernels, kInputs, 16>(in, grad, call, stream);
    case 32:
      return start_grad_tile<Kernels, kInputs, 32>(in, grad, call, stream);
    default:
      return start_grad_tile<Kernels, kInputs, 64>(in, grad, call, stream);
  }
}

template <class Kernels>
void start_grad_kernel(const CUtensorMap& in, const CUtensorMap& grad, const GradCall& call, Stream stream) {
  switch (call.tiling.inputs) {
    case 16:
      return start_grad_outputs<Kernels, 16>(in, grad, call, stream);
    case 32:
      return start_grad_outputs<Kernels, 32>(in, grad, call, stream);
    default:
      return start_grad_outputs<Kernels, 64>(in, grad, call, stream);
  }
}

}  // namespace ulp::cuda
