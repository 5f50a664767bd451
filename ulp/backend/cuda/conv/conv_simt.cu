#include "ulp/backend/cuda/conv/conv_simt.h"

#include <cmath>

#include "ulp/backend/cuda/runtime/launch.h"
#include "ulp/numeric/math.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kDepth = kSimtDepth, kQuad = kSimtQuad;
// Quads of a row whose elements are contiguous along the depth.
constexpr uint32_t kRowQuads = kDepth / kQuad;
constexpr uint32_t kNone = 0xFFFFFFFFu;  // no position in a tensor
constexpr int32_t kFar = -(1 << 30);     // a row or column that no tap moves into an image

// A warp has 32 rows and 8 * each columns, its lanes are 4 by 8. In shared memory the operands'
// rows and columns are contiguous for each step of the depth, padded by 4 words: so two quads along
// the depth, written word by word, go to banks 16 apart.
template <uint32_t kColumns, uint32_t kWarps, uint32_t kEach, uint32_t kResident>
struct Tile {
  static constexpr uint32_t rows = kSimtRows, columns = kColumns, each = kEach;
  static constexpr uint32_t threads = 32 * kWarps, resident = kResident;
  static constexpr uint32_t warp_rows = 32, warp_columns = 8 * each;
  static constexpr uint32_t row_stride = rows + 4, column_stride = columns + 4;
  // Quads that a thread loads; the last threads may have none of the columns'.
  static constexpr uint32_t row_quads = rows * kRowQuads / threads;
  static constexpr uint32_t column_quads = (columns * kRowQuads + threads - 1) / threads;
  static_assert(rows / warp_rows * (columns / warp_columns) == kWarps);
  static_assert(rows * kRowQuads % threads == 0 && row_stride % 8 == 4 && column_stride % 8 == 4);
};
using Slim = Tile<32, 4, 4, 5>;
using Narrow = Tile<64, 4, 8, 4>;
using Wide = Tile<128, 8, 8, 2>;

// Zeros if `there` is false. Without a branch, which would delay the loads after it.
__device__ __forceinline__ float4 load_quad(const float* from, uint32_t at, bool there) {
#if defined(__CUDACC__)
  float4 quad;
  asm volatile(
      "{\n"
      ".reg .pred there;\n"
      "setp.ne.u32 there, %5, 0;\n"
      "mov.f32 %0, 0f00000000;\n"
      "mov.f32 %1, 0f00000000;\n"
      "mov.f32 %2, 0f00000000;\n"
      "mov.f32 %3, 0f00000000;\n"
      "@there ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=f"(quad.x), "=f"(quad.y), "=f"(quad.z), "=f"(quad.w)
      : "l"(from + at), "r"(static_cast<uint32_t>(there)));
  return quad;
#else
  return there ? *reinterpret_cast<const float4*>(from + at) : make_float4(0, 0, 0, 0);
#endif
}

// Stores quads to shared memory: of elements contiguous along the depth, or along the tile.
template <bool kAlong, uint32_t kWidth, uint32_t kThreadCount, uint32_t kQuads>
__device__ __forceinline__ void put(const float4 (&quads)[kQuads], float* shared) {
  constexpr uint32_t stride = kWidth + 4;
#pragma unroll
  for (uint32_t i = 0; i < kQuads; ++i) {
    const uint32_t index = threadIdx.x + i * kThreadCount;
    if (kWidth * kRowQuads < kThreadCount && index >= kWidth * kRowQuads) continue;
    const float4& quad = quads[i];
    if constexpr (kAlong) {
      float* to = shared + index % kRowQuads * kQuad * stride + index / kRowQuads;
      to[0] = quad.x, to[stride] = quad.y, to[2 * stride] = quad.z, to[3 * stride] = quad.w;
    } else {
      constexpr uint32_t across = kWidth / kQuad;
      *reinterpret_cast<float4*>(shared + index / across * stride + index % across * kQuad) =
          make_float4(quad.x, quad.y, quad.z, quad.w);
    }
  }
}

// Operands of forward and input gradient: pixels moved by taps, along the channels, and the taps'
// matrices.
template <typename T, bool kGradient>
class TapSource {
 public:
  static constexpr bool kRowsAlong = true, kColumnsAlong = !kGradient;

  __device__ TapSource(const ConvSimtCall& call, const ConvSimtPart& part, uint32_t row_tile,
                       uint32_t column_tile, uint32_t chunk)
      : call_(call), part_(part) {
    const uint32_t tap = chunk / part.tap_chunks;
    tap_row_ = tap / part.shape.columns;
    tap_column_ = tap % part.shape.columns;
    channel_ = chunk % part.tap_chunks * kDepth;
    const uint32_t results = part.shape.images * part.shape.out_h * part.shape.out_w;
#pragma unroll
    for (uint32_t i = 0; i < T::row_quads; ++i) {
      const uint32_t result = row_tile * T::rows + (threadIdx.x + i * T::threads) / kRowQuads;
      const uint32_t image = part.area.quotient(result), place = result - image * part.area.divisor;
      const uint32_t p = part.width.quotient(place), q = place - p * part.width.divisor;
      y_[i] = result < results ? static_cast<int32_t>(p * part.shape.stride_h) : kFar;
      x_[i] = static_cast<int32_t>(q * part.shape.stride_w);
      pixel_[i] = static_cast<int32_t>((image * call.in_h + p * part.shape.stride_h) * call.in_w +
                                       q * part.shape.stride_w);
    }
#pragma unroll
    for (uint32_t i = 0; i < T::column_quads; ++i) {
      const uint32_t index = threadIdx.x + i * T::threads, first = column_tile * T::columns;
      constexpr uint32_t across = T::columns / kQuad;
      const uint32_t n = first + (kGradient ? index % across * kQuad : index / kRowQuads);
      const bool there = n < call.out_c && index < T::columns * kRowQuads;
      weight_[i] = !there      ? kNone
                   : kGradient ? index / across * call.weight_taps * call.out_c + n
                               : n * call.weight_taps * call.in_c + index % kRowQuads * kQuad;
    }
    seek();
  }

  __device__ __forceinline__ void load(float4 (&rows)[T::row_quads],
                                       float4 (&columns)[T::column_quads]) const {
    const bool within = channel_ + threadIdx.x % kRowQuads * kQuad < call_.in_c;
#pragma unroll
    for (uint32_t i = 0; i < T::row_quads; ++i)
      rows[i] = load_quad(call_.images, at_[i] + channel_, within && at_[i] != kNone);
    const uint32_t moved = matrix_ + (kGradient ? channel_ * call_.weight_taps * call_.out_c : channel_);
#pragma unroll
    for (uint32_t i = 0; i < T::column_quads; ++i) {
      constexpr uint32_t across = T::columns / kQuad;
      const bool there = kGradient ? channel_ + (threadIdx.x + i * T::threads) / across < call_.in_c : within;
      columns[i] = load_quad(call_.weight, weight_[i] + moved, there && weight_[i] != kNone);
    }
  }

  __device__ __forceinline__ void next() {
    channel_ += kDepth;
    if (channel_ < call_.in_c) return;
    channel_ = 0;
    if (++tap_column_ == part_.shape.columns) {
      tap_column_ = 0;
      ++tap_row_;
    }
    seek();
  }

 private:
  // Moves to the current tap.
  __device__ __forceinline__ void seek() {
    const int32_t down = part_.shape.row[tap_row_], right = part_.shape.column[tap_column_];
    const int32_t moved = down * static_cast<int32_t>(call_.in_w) + right;
#pragma unroll
    for (uint32_t i = 0; i < T::row_quads; ++i) {
      const bool inside = static_cast<uint32_t>(y_[i] + down) < call_.in_h &&
                          static_cast<uint32_t>(x_[i] + right) < call_.in_w;
      at_[i] = inside
                   ? static_cast<uint32_t>(pixel_[i] + moved) * call_.in_c + threadIdx.x % kRowQuads * kQuad
                   : kNone;
    }
    matrix_ =
        part_.source[tap_row_ * part_.shape.columns + tap_column_] * (kGradient ? call_.out_c : call_.in_c);
  }

  const ConvSimtCall& call_;
  const ConvSimtPart& part_;
  uint32_t tap_row_, tap_column_, channel_;
  // Where the tap's matrix begins.
  uint32_t matrix_ = 0;
  int32_t y_[T::row_quads], x_[T::row_quads], pixel_[T::row_quads];  // of results, without a tap
  // With the tap, at its first channel.
  uint32_t at_[T::row_quads] = {};
  uint32_t weight_[T::column_quads];
};

// Operands of the weight gradient: the input under the window of an output pixel, and the pixel's
// gradient, along the channels.
template <typename T>
class PixelSource {
 public:
  static constexpr bool kRowsAlong = false, kColumnsAlong = false;

  __device__ PixelSource(const ConvSimtGrad& call, uint32_t row_tile, uint32_t column_tile, uint32_t first,
                         uint32_t last)
      : call_(call), first_(first), last_(last) {
    static_assert(T::threads % (T::rows / kQuad) == 0);
    const IgemmShape& shape = call.shape;
    // All of the thread's quads have the same tap and channel.
    const uint32_t row = row_tile * T::rows + threadIdx.x % (T::rows / kQuad) * kQuad;
    const uint32_t tap = row / shape.in_c;
    there_ = tap < shape.taps();
    channel_ = row - tap * shape.in_c;
    const int32_t down = there_ ? shape.row[tap / shape.columns] : 0,
                  right = there_ ? shape.column[tap % shape.columns] : 0;
    bottom_ = static_cast<int32_t>(shape.out_h * shape.stride_h) + down;
    end_ = static_cast<int32_t>(shape.out_w * shape.stride_w) + right;
#pragma unroll
    for (uint32_t i = 0; i < T::row_quads; ++i) {
      const uint32_t pixel = first + row_of(i), image = call.area.quotient(pixel),
                     place = pixel - image * call.area.divisor;
      const uint32_t p = call.width.quotient(place), q = place - p * call.width.divisor;
      y_[i] = static_cast<int32_t>(p * shape.stride_h) + down;
      x_[i] = static_cast<int32_t>(q * shape.stride_w) + right;
      image_[i] = image;
    }
#pragma unroll
    for (uint32_t i = 0; i < T::column_quads; ++i) {
      const uint32_t index = threadIdx.x + i * T::threads,
                     n = column_tile * T::columns + index % kAcross * kQuad;
      grad_[i] = n < shape.out_c && index < T::columns * kRowQuads
                     ? (first + index / kAcross) * shape.out_c + n
                     : kNone;
    }
  }

  __device__ __forceinline__ void load(float4 (&rows)[T::row_quads],
                                       float4 (&columns)[T::column_quads]) const {
    const IgemmShape& shape = call_.shape;
#pragma unroll
    for (uint32_t i = 0; i < T::row_quads; ++i) {
      const bool inside = there_ && first_ + row_of(i) < last_ && static_cast<uint32_t>(y_[i]) < shape.in_h &&
                          static_cast<uint32_t>(x_[i]) < shape.in_w;
      const uint32_t pixel =
          (image_[i] * shape.in_h + static_cast<uint32_t>(y_[i])) * shape.in_w + static_cast<uint32_t>(x_[i]);
      rows[i] = load_quad(call_.images, pixel * shape.in_c + channel_, inside);
    }
#pragma unroll
    for (uint32_t i = 0; i < T::column_quads; ++i) {
      const bool inside = grad_[i] != kNone && first_ + (threadIdx.x + i * T::threads) / kAcross < last_;
      columns[i] = load_quad(call_.grad, grad_[i] + moved_, inside);
    }
  }

  __device__ __forceinline__ void next() {
    const IgemmShape& shape = call_.shape;
    first_ += kDepth;
    moved_ += kDepth * shape.out_c;
#pragma unroll
    for (uint32_t i = 0; i < T::row_quads; ++i) {
      x_[i] += static_cast<int32_t>(call_.step_column * shape.stride_w);
      y_[i] += static_cast<int32_t>(call_.step_row * shape.stride_h);
      image_[i] += call_.step_image;
      if (x_[i] >= end_) {
        x_[i] -= static_cast<int32_t>(shape.out_w * shape.stride_w);
        y_[i] += static_cast<int32_t>(shape.stride_h);
      }
      if (y_[i] >= bottom_) {
        y_[i] -= static_cast<int32_t>(shape.out_h * shape.stride_h);
        ++image_[i];
      }
    }
  }

 private:
  static constexpr uint32_t kAcross = T::columns / kQuad;
  // A quad's row in the chunk.
  static __device__ __forceinline__ uint32_t row_of(uint32_t i) {
    return (threadIdx.x + i * T::threads) / (T::rows / kQuad);
  }

  const ConvSimtGrad& call_;
  uint32_t first_, last_;  // pixels
  bool there_;
  uint32_t channel_;
  int32_t bottom_, end_;  // where the window has passed the last pixel of a column, of a row
  int32_t y_[T::row_quads], x_[T::row_quads];
  uint32_t image_[T::row_quads];
  uint32_t grad_[T::column_quads], moved_ = 0;
};

// Which rows and columns of its tile a thread sums: quads, half a warp's tile apart. Lanes are
// placed such that of each four, two read the same rows and two the same columns, and half a warp
// reads four quads of either operand.
template <typename T>
struct Place {
  uint32_t row, column;

  __device__ Place() {
    constexpr uint32_t warps_across = T::columns / T::warp_columns;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = warp / warps_across * T::warp_rows + ((lane & 1) | (lane >> 2 & 2)) * kQuad;
    column = warp % warps_across * T::warp_columns + ((lane >> 1 & 3) | (lane >> 2 & 4)) * kQuad;
  }
  __device__ uint32_t row_of(uint32_t i) const { return row + i / kQuad * (T::warp_rows / 2) + i % kQuad; }
  __device__ uint32_t quad_column(uint32_t j) const { return column + j * 32; }
};

template <typename T, typename Source>
__device__ __forceinline__ void multiply(Source& source, uint32_t chunks, const Place<T>& place,
                                         float (&sums)[8][T::each]) {
  __shared__ float4 row_memory[2 * kDepth * T::row_stride / kQuad];
  __shared__ float4 column_memory[2 * kDepth * T::column_stride / kQuad];
  float *const rows = reinterpret_cast<float*>(row_memory), *const columns =
                                                                reinterpret_cast<float*>(column_memory);
  float4 row_quads[T::row_quads], column_quads[T::column_quads];
  const auto write = [&](uint32_t buffer) {
    put<Source::kRowsAlong, T::rows, T::threads>(row_quads, rows + buffer * kDepth * T::row_stride);
    put<Source::kColumnsAlong, T::columns, T::threads>(column_quads,
                                                       columns + buffer * kDepth * T::column_stride);
  };
  source.load(row_quads, column_quads);
  write(0);
  __syncthreads();
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    const bool more = chunk + 1 < chunks;
    if (more) {
      source.next();
      source.load(row_quads, column_quads);
    }
    const uint32_t buffer = chunk & 1;
    const float* a = rows + buffer * kDepth * T::row_stride + place.row;
    const float* b = columns + buffer * kDepth * T::column_stride + place.column;
#pragma unroll
    for (uint32_t k = 0; k < kDepth; ++k) {
      float x[8], y[T::each];
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const float4 quad = *reinterpret_cast<const float4*>(a + k * T::row_stride + i * (T::warp_rows / 2));
        x[4 * i] = quad.x, x[4 * i + 1] = quad.y, x[4 * i + 2] = quad.z, x[4 * i + 3] = quad.w;
      }
#pragma unroll
      for (uint32_t j = 0; j < T::each / 4; ++j) {
        const float4 quad = *reinterpret_cast<const float4*>(b + k * T::column_stride + j * 32);
        y[4 * j] = quad.x, y[4 * j + 1] = quad.y, y[4 * j + 2] = quad.z, y[4 * j + 3] = quad.w;
      }
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
#pragma unroll
        for (uint32_t j = 0; j < T::each; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
      }
    }
    if (!more) break;
    // All threads have finished reading the other buffer: they passed a barrier since.
    write(buffer ^ 1);
    __syncthreads();
  }
}

template <typename T, bool kGradient>
__global__ void __launch_bounds__(T::threads, T::resident) taps_kernel(ULP_TABLE(ConvSimtCall) call) {
  uint32_t block = blockIdx.x, index = 0;
  while (index + 1 < call.parts && block >= call.part[index + 1].first_block) ++index;
  const ConvSimtPart& part = call.part[index];
  block -= part.first_block;
  const uint32_t column_tile = block % call.column_tiles, rest = block / call.column_tiles;
  const uint32_t row_tile = rest % part.row_tiles, piece = rest / part.row_tiles;
  const uint32_t begin = piece * part.each, first = begin < part.chunks ? begin : part.chunks;
  const uint32_t left = part.chunks - first, chunks = left < part.each ? left : part.each;
  const Place<T> place;
  float sums[8][T::each] = {};
  if (chunks > 0) {
    TapSource<T, kGradient> source(call, part, row_tile, column_tile, first);
    multiply<T>(source, chunks, place, sums);
  }

  const IgemmShape& shape = part.shape;
  const uint32_t results = shape.images * shape.out_h * shape.out_w;
  float* out = call.out + uint64_t{piece} * call.elements;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t result = row_tile * T::rows + place.row_of(i);
    if (result >= results) continue;
    const uint32_t image = part.area.quotient(result), at = result - image * part.area.divisor;
    const uint32_t p = part.width.quotient(at), q = at - p * part.width.divisor;
    const uint32_t pixel = (image * shape.full_h + p * shape.step_h + shape.first_h) * shape.full_w +
                           q * shape.step_w + shape.first_w;
#pragma unroll
    for (uint32_t j = 0; j < T::each / kQuad; ++j) {
      const uint32_t column = column_tile * T::columns + place.quad_column(j);
      if (column >= call.out_c) continue;
      const float* from = sums[i] + kQuad * j;
      *reinterpret_cast<float4*>(out + pixel * call.out_c + column) =
          make_float4(settle_nan(from[0]), settle_nan(from[1]), settle_nan(from[2]), settle_nan(from[3]));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(T::threads, T::resident) pixels_kernel(ULP_TABLE(ConvSimtGrad) call) {
  const uint32_t column_tile = blockIdx.x % call.column_tiles, rest = blockIdx.x / call.column_tiles;
  const uint32_t row_tile = rest % call.row_tiles, piece = rest / call.row_tiles;
  const uint32_t first = piece * call.each, left = call.pixels() - first,
                 pixels = left < call.each ? left : call.each;
  const Place<T> place;
  float sums[8][T::each] = {};
  PixelSource<T> source(call, row_tile, column_tile, first, first + pixels);
  multiply<T>(source, (pixels + kDepth - 1) / kDepth, place, sums);

  // Rows are contiguous in memory.
  const uint32_t width = call.shape.taps() * call.shape.in_c;
  float* out = call.out + uint64_t{piece} * call.elements();
#pragma unroll
  for (uint32_t j = 0; j < T::each; ++j) {
    const uint32_t column = column_tile * T::columns + place.quad_column(j / kQuad) + j % kQuad;
    if (column >= call.shape.out_c) continue;
#pragma unroll
    for (uint32_t i = 0; i < 8; i += kQuad) {
      const uint32_t row = row_tile * T::rows + place.row_of(i);
      if (row >= width) continue;
      *reinterpret_cast<float4*>(out + column * width + row) =
          make_float4(settle_nan(sums[i][j]), settle_nan(sums[i + 1][j]), settle_nan(sums[i + 2][j]),
                      settle_nan(sums[i + 3][j]));
    }
  }
}

template <typename T>
void start(const ConvSimtCall& call, Stream stream) {
  if (call.gradient) {
    launch(taps_kernel<T, true>, {call.blocks, T::threads}, stream, call);
  } else {
    launch(taps_kernel<T, false>, {call.blocks, T::threads}, stream, call);
  }
}

template <typename T>
void start_grad(const ConvSimtGrad& call, Stream stream) {
  launch(pixels_kernel<T>, {call.row_tiles * call.column_tiles * call.tiling.pieces, T::threads}, stream,
         call);
}

}  // namespace

void run_conv_simt(const ConvSimtCall& call, Stream stream) {
  switch (call.tiling.tile) {
    case ConvSimtTile::slim:
      return start<Slim>(call, stream);
    case ConvSimtTile::narrow:
      return start<Narrow>(call, stream);
    case ConvSimtTile::wide:
      return start<Wide>(call, stream);
  }
}

void run_conv_simt_wgrad(const ConvSimtGrad& call, Stream stream) {
  switch (call.tiling.tile) {
    case ConvSimtTile::slim:
      return start_grad<Slim>(call, stream);
    case ConvSimtTile::narrow:
      return start_grad<Narrow>(call, stream);
    case ConvSimtTile::wide:
      return start_grad<Wide>(call, stream);
  }
}

}  // namespace ulp::cuda
