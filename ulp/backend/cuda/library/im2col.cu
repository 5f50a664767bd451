#include "ulp/backend/cuda/library/im2col.h"

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/access/operand_codes.h"

namespace ulp::cuda {
namespace {

__device__ inline uint64_t thread_number() { return blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; }
__device__ inline uint64_t thread_count() { return uint64_t{gridDim.x} * blockDim.x; }

// How codes are read: whole bytes directly, S2FP8 by a table; any others through load_one.
enum class Codes : uint8_t { bits8, bits16, fp32, s2fp8, any };

template <Codes codes>
__device__ inline float read(const StoredView& view, const float* values, uint64_t i) {
  if constexpr (codes == Codes::s2fp8) return values[view.codes[i]];
  if constexpr (codes == Codes::bits8) return bits_float(decode_quick(view.codec, view.codes[i]));
  if constexpr (codes == Codes::bits16)
    return bits_float(decode_quick(view.codec, reinterpret_cast<const uint16_t*>(view.codes)[i]));
  if constexpr (codes == Codes::fp32) return reinterpret_cast<const float*>(view.codes)[i];
  return load_one(view, i);
}

// Where a group of eight of a row begins.
struct Place {
  uint64_t image;     // its first element
  int32_t top, left;  // of the window; may lie outside
  uint32_t tap;       // the group's first element in the row
};

__device__ inline Place place_of(const ConvExtents32& window, uint64_t first_image, uint32_t groups,
                                 uint32_t g) {
  const uint32_t row = g / groups, group = g % groups;
  const uint32_t line = row / window.out_w, x = row % window.out_w;
  const uint32_t image = line / window.out_h, y = line % window.out_h;
  return {(first_image + image) * window.h * window.w * window.c,
          static_cast<int32_t>(y * window.stride_h) - static_cast<int32_t>(window.padding_h),
          static_cast<int32_t>(x * window.stride_w) - static_cast<int32_t>(window.padding_w), group * kGroup};
}

__device__ inline bool inside(const ConvExtents32& window, int32_t y, int32_t x) {
  return static_cast<uint32_t>(y) < window.h && static_cast<uint32_t>(x) < window.w;
}

// Few channels: a group spans several taps, and a thread walks through them.
template <Codes codes>
__global__ void gather_taps(StoredView view, ConvExtents32 window, uint64_t first_image, uint32_t groups,
                            uint32_t total, DecodedType target, QuickCodec codec, uint8_t* out) {
  __shared__ float values[codes == Codes::s2fp8 ? 256 : 1];
  if constexpr (codes == Codes::s2fp8) {
    make_s2fp8_values(view, values);
    __syncthreads();
  }
  for (uint32_t g = blockIdx.x * blockDim.x + threadIdx.x; g < total; g += gridDim.x * blockDim.x) {
    const Place at = place_of(window, first_image, groups, g);
    uint32_t channel = at.tap % window.c;
    const uint32_t tap = at.tap / window.c;
    uint32_t kx = tap % window.kernel_w, ky = tap / window.kernel_w;
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t py = at.top + static_cast<int32_t>(ky), px = at.left + static_cast<int32_t>(kx);
      x[i] = 0;
      if (ky < window.kernel_h && inside(window, py, px)) {
        const uint32_t pixel = static_cast<uint32_t>(py) * window.w + static_cast<uint32_t>(px);
        x[i] = read<codes>(view, values, at.image + uint64_t{pixel} * window.c + channel);
      }
      if (++channel == window.c) {
        channel = 0;
        if (++kx == window.kernel_w) {
          kx = 0;
          ++ky;
        }
      }
    }
    store_targets(target, codec, out, g, kGroup, x);
  }
}

// Channels in multiples of eight: a group lies within one tap and is a group of the tensor.
__global__ void gather_groups(StoredView view, ConvExtents32 window, uint64_t first_image, uint32_t groups,
                              uint32_t total, DecodedType target, QuickCodec codec, uint8_t* out) {
  for (uint32_t g = blockIdx.x * blockDim.x + threadIdx.x; g < total; g += gridDim.x * blockDim.x) {
    const Place at = place_of(window, first_image, groups, g);
    const uint32_t channel = at.tap % window.c, tap = at.tap / window.c;
    const int32_t py = at.top + static_cast<int32_t>(tap / window.kernel_w);
    const int32_t px = at.left + static_cast<int32_t>(tap % window.kernel_w);
    float x[8] = {};
    // Beyond the window rows are padding.
    if (tap < window.taps() && inside(window, py, px)) {
      const uint32_t pixel = static_cast<uint32_t>(py) * window.w + static_cast<uint32_t>(px);
      load_stored(view, (at.image + uint64_t{pixel} * window.c + channel) / kGroup, x);
    }
    store_targets(target, codec, out, g, kGroup, x);
  }
}

// One thread per 16 bytes.
template <typename Code>
__global__ void gather_pieces(const Code* codes, ConvExtents32 window, uint32_t pieces, uint32_t total,
                              uint4* out) {
  constexpr uint32_t kEach = 16 / sizeof(Code);
  for (uint32_t g = blockIdx.x * blockDim.x + threadIdx.x; g < total; g += gridDim.x * blockDim.x) {
    Place at = place_of(window, 0, pieces, g);
    at.tap = g % pieces * kEach;
    uint32_t channel = at.tap % window.c;
    const uint32_t tap = at.tap / window.c;
    uint32_t kx = tap % window.kernel_w, ky = tap / window.kernel_w;
    uint32_t word[4] = {};
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) {
      const int32_t py = at.top + static_cast<int32_t>(ky), px = at.left + static_cast<int32_t>(kx);
      if (ky < window.kernel_h && inside(window, py, px)) {
        const uint32_t pixel = static_cast<uint32_t>(py) * window.w + static_cast<uint32_t>(px);
        const uint32_t code = codes[at.image + uint64_t{pixel} * window.c + channel];
        word[i * sizeof(Code) / 4] |= code << (8 * sizeof(Code) * i % 32);
      }
      if (++channel == window.c) {
        channel = 0;
        if (++kx == window.kernel_w) {
          kx = 0;
          ++ky;
        }
      }
    }
    out[g] = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

__global__ void recode_groups(WriteView view, uint64_t groups) {
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups;
       g += uint64_t{gridDim.x} * blockDim.x) {
    uint32_t code[8];
    load_codes(view.stored.codes, 16, g, kGroup, code);
    bool changed = false;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t x = decode_quick(view.stored.codec, code[i]);
      const Encoded made = encode_even(view.stored.codec, x);
      seen.add(made, x);
      changed = changed || made.code != code[i];
      code[i] = made.code;
    }
    if (changed) store_codes(view.stored.codes, 16, g, kGroup, code);
  }
  report(seen, view.stats);
}

__global__ void add_quads(float4* total, const float4* part, uint64_t quads) {
  for (uint64_t i = thread_number(); i < quads; i += thread_count()) {
    const float4 a = total[i], b = part[i];
    total[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
}

__global__ void add_row(float4* out, const float4* row, uint64_t quads, uint32_t width) {
  // The column advances by the same step each time: no division in the loop.
  const auto step = static_cast<uint32_t>(thread_count() % width);
  auto column = static_cast<uint32_t>(thread_number() % width);
  for (uint64_t i = thread_number(); i < quads; i += thread_count()) {
    const float4 a = out[i], b = row[column];
    out[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    column += step;
    if (column >= width) column -= width;
  }
}

__global__ void copy_each(float* to, uint64_t to_width, const float* from, uint64_t from_width, uint64_t rows,
                          uint64_t channels) {
  for (uint64_t i = thread_number(); i < rows * to_width; i += thread_count()) {
    const uint64_t row = i / to_width, column = i % to_width;
    to[i] = column < channels ? from[row * from_width + column] : 0;
  }
}

__global__ void clear_quads(uint4* out, uint64_t quads) {
  for (uint64_t i = thread_number(); i < quads; i += thread_count()) out[i] = make_uint4(0, 0, 0, 0);
}

}  // namespace

void gather_windows(const StoredView& view, const ConvExtents32& window, uint64_t first_image,
                    uint64_t images, uint32_t padded, DecodedType target, void* out, Stream stream) {
  const bool plain = view.kind == Stored::plain;
  const auto kernel = window.c % kGroup == 0       ? gather_groups
                      : plain && view.fp32         ? gather_taps<Codes::fp32>
                      : plain && view.bits == 8    ? gather_taps<Codes::bits8>
                      : plain && view.bits == 16   ? gather_taps<Codes::bits16>
                      : view.kind == Stored::s2fp8 ? gather_taps<Codes::s2fp8>
                                                   : gather_taps<Codes::any>;
  const uint32_t groups = padded / kGroup;
  const uint64_t per_image = uint64_t{window.out_h} * window.out_w * groups;
  auto* bytes = static_cast<uint8_t*>(out);
  in_slices_of_images(images, per_image, [&](uint64_t first, uint64_t count) {
    const auto total = static_cast<uint32_t>(count * per_image);
    launch(kernel, {blocks_for(total), kThreads}, stream, view, window, first_image + first, groups, total,
           target, target_codec(target), bytes + first * per_image * kGroup * target_bytes(target));
  });
}

void gather_codes(const uint8_t* codes, uint32_t bytes, const ConvExtents32& window, uint64_t images,
                  uint32_t padded, void* out, Stream stream) {
  const uint32_t pieces = padded * bytes / 16;
  const uint64_t per_image = uint64_t{window.out_h} * window.out_w * pieces;
  const uint64_t image_codes = uint64_t{window.h} * window.w * window.c;
  in_slices_of_images(images, per_image, [&](uint64_t first, uint64_t count) {
    const auto total = static_cast<uint32_t>(count * per_image);
    const Grid grid{blocks_for(total), kThreads};
    const uint8_t* from = codes + first * image_codes * bytes;
    uint4* to = static_cast<uint4*>(out) + first * per_image;
    if (bytes == 1) {
      launch(gather_pieces<uint8_t>, grid, stream, from, window, pieces, total, to);
    } else {
      launch(gather_pieces<uint16_t>, grid, stream, reinterpret_cast<const uint16_t*>(from), window, pieces,
             total, to);
    }
  });
}

void recode(const WriteView& view, Stream stream) {
  const uint64_t groups = view.stored.elements / kGroup;
  launch(recode_groups, {blocks_for(groups), kThreads}, stream, view, groups);
}

void add_array(float* total, const float* part, uint64_t count, Stream stream) {
  launch(add_quads, {blocks_for(count / 4), kThreads}, stream, reinterpret_cast<float4*>(total),
         reinterpret_cast<const float4*>(part), count / 4);
}

void add_to_rows(float* out, const float* row, uint64_t rows, uint64_t width, Stream stream) {
  const uint64_t quads = rows * width / 4;
  launch(add_row, {blocks_for(quads), kThreads}, stream, reinterpret_cast<float4*>(out),
         reinterpret_cast<const float4*>(row), quads, static_cast<uint32_t>(width / 4));
}

void copy_rows(float* to, uint64_t to_width, const float* from, uint64_t from_width, uint64_t rows,
               uint64_t channels, Stream stream) {
  launch(copy_each, {blocks_for(rows * to_width), kThreads}, stream, to, to_width, from, from_width, rows,
         channels);
}

void clear_bytes(void* out, uint64_t bytes, Stream stream) {
  launch(clear_quads, {blocks_for(bytes / 16), kThreads}, stream, static_cast<uint4*>(out), bytes / 16);
}

}  // namespace ulp::cuda
