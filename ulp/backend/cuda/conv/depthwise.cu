// Depthwise convolution: forward, and gradients of images.
#include "ulp/backend/cuda/conv/depthwise_device.h"

namespace ulp::cuda {
namespace {

using namespace depthwise;

// Columns of a strip: of outputs, and of the images under them. Fewer for wide codes, which occupy
// registers before decoding too.
template <int V, int B, int S>
constexpr int strip_of() {
  return S == 1 && V * B < 8 ? 4 : 2;
}
template <int V, int B, int S>
constexpr int columns_of() {
  return (strip_of<V, B, S>() - 1) * S + 3;
}

// Adds a row of the image to the sums of Count output rows; it meets the i-th with kernel row First
// - Step * i.
template <int V, int B, int S, int First, int Count, int Step, int Slots>
__device__ inline void add_row(const ConvExtents32& d, const StoredView& x, const VectorDecoder& decoder,
                               uint64_t image, int row, int column, const float (&taps)[9][V],
                               float (&sums)[Slots][strip_of<V, B, S>()][V]) {
  static_assert(Count <= Slots);
  constexpr int kColumns = columns_of<V, B, S>();
  if (static_cast<uint32_t>(row) >= d.h) return;
  Row<V, B, kColumns> codes;
  codes.fetch_from(x.codes, image + static_cast<uint64_t>(row) * d.w * d.c, column, d.w, d.c);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    if (static_cast<uint32_t>(column + j) >= d.w) continue;
    float pixel[V];
    decode_vector<V, B>(x, decoder, codes.first + static_cast<uint32_t>(j) * d.c, codes.raw[j], pixel);
#pragma unroll
    for (int i = 0; i < Count; ++i) {
#pragma unroll
      for (int o = 0; o < strip_of<V, B, S>(); ++o) {
        const int kx = j - o * S;
        if (kx < 0 || kx > 2) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sums[i][o][v] = fmaf(pixel[v], taps[(First - Step * i) * 3 + kx][v], sums[i][o][v]);
        }
      }
    }
  }
}

template <int V, int N>
__device__ inline void write_row(const WriteView& out, const StepState* state, uint64_t row, uint32_t column,
                                 uint32_t width, uint32_t c, const float* bias, const float (&sums)[N][V],
                                 RangeCount& seen) {
#pragma unroll
  for (int o = 0; o < N; ++o) {
    if (column + o >= width) continue;
    float value[V];
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] = sums[o][v] + bias[v];
    store_vector<V>(out, state, row + uint64_t{column + o} * c, value, seen);
  }
}

// Also the gradient of images with stride 1, which is a convolution with the kernel rotated by 180
// degrees (`turned`).
template <int V, int B, int S>
__global__ void __launch_bounds__(kThreads, 2)
    forward_three(ConvExtents32 d, Cut cut, const StepState* state, StoredView x, ReadView weight,
                  ReadView bias, bool turned, const __grid_constant__ WriteView out) {
  ULP_SHARED(float, shared);
  __shared__ float table[kThreads];
  constexpr int kStrip = strip_of<V, B, S>();
  const Place place(cut, blockIdx.x);
  const VectorDecoder decoder = make_vector_decoder(x, table);
  load_taps<V>(d, cut, place.chunk, state, weight, bias, turned, shared);
  RangeCount seen;
  if (place.works) {
    float taps[9][V];
    const float* own = own_taps(cut, place, shared, taps);
    const float* own_bias = own + 9 * cut.lanes * V;
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.h * d.w * d.c + place.vector * V;
      const uint64_t image_out = uint64_t{tile.image} * d.out_h * d.out_w * d.c + place.vector * V;
      const int column = static_cast<int>(tile.strip) * kStrip * S - 1;
      const auto write = [&](uint32_t oy, const float(&sums)[kStrip][V]) {
        write_row<V>(out, state, image_out + uint64_t{oy} * d.out_w * d.c, tile.strip * kStrip, d.out_w, d.c,
                     own_bias, sums, seen);
      };
      if constexpr (S == 1) {
        float sums[3][kStrip][V];  // of the output rows above, at and below a row of the image
        clear_row<V>(sums[0]);
        clear_row<V>(sums[1]);
        clear_row<V>(sums[2]);
        const int first = static_cast<int>(tile.first_row), end = static_cast<int>(tile.end_row);
#pragma unroll 1
        for (int row = first - 1; row <= end; ++row) {
          add_row<V, B, S, 2, 3, 1>(d, x, decoder, image, row, column, taps, sums);
          if (row > first) write(static_cast<uint32_t>(row - 1), sums[0]);
          move_row<V>(sums[0], sums[1]);
          move_row<V>(sums[1], sums[2]);
          clear_row<V>(sums[2]);
        }
      } else {
        float sums[2][kStrip][V];  // of an output row and the next
        clear_row<V>(sums[0]);
        add_row<V, B, S, 0, 1, 0>(d, x, decoder, image, static_cast<int>(tile.first_row) * S - 1, column,
                                  taps, sums);
#pragma unroll 1
        for (uint32_t oy = tile.first_row; oy < tile.end_row; ++oy) {
          clear_row<V>(sums[1]);
          const int row = static_cast<int>(oy) * S;
          add_row<V, B, S, 1, 1, 0>(d, x, decoder, image, row, column, taps, sums);
          add_row<V, B, S, 2, 2, 2>(d, x, decoder, image, row + 1, column, taps, sums);
          write(oy, sums[0]);
          move_row<V>(sums[0], sums[1]);
        }
      }
    }
  }
  if (!out.stored.fp32) report(seen, out.stats);
}

// Output columns of a strip; as many pixel sums under them as fit registers.
constexpr int spread_strip(uint32_t width) { return width == 4 ? 1 : 2; }

// The gradient of images with stride 2. Output (a, b) covers the pixels of rows 2a - 1, 2a and 2a +
// 1, and of columns 2b - 1, 2b and 2b + 1.
template <int V, int B>
__global__ void __launch_bounds__(kThreads, 2)
    spread_three(ConvExtents32 d, Cut cut, const StepState* state, StoredView dout, ReadView weight,
                 const __grid_constant__ WriteView dx) {
  ULP_SHARED(float, shared);
  __shared__ float table[kThreads];
  constexpr int kStrip = spread_strip(V);
  const Place place(cut, blockIdx.x);
  const VectorDecoder decoder = make_vector_decoder(dout, table);
  load_taps<V>(d, cut, place.chunk, state, weight, ReadView{}, false, shared);
  RangeCount seen;
  if (place.works) {
    float taps[9][V];
    const float* own = own_taps(cut, place, shared, taps);
    const float* no_bias = own + 9 * cut.lanes * V;
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.out_h * d.out_w * d.c + place.vector * V;
      const uint64_t image_dx = uint64_t{tile.image} * d.h * d.w * d.c + place.vector * V;
      const uint32_t column = tile.strip * kStrip;
      const auto write = [&](uint32_t y, const float(&sums)[2 * kStrip][V]) {
        if (y >= d.h) return;
        write_row<V>(dx, state, image_dx + uint64_t{y} * d.w * d.c, 2 * column, d.w, d.c, no_bias, sums,
                     seen);
      };
      float sums[3][2 * kStrip][V];  // of rows 2a - 1, 2a, 2a + 1
      clear_row<V>(sums[0]);
#pragma unroll 1
      for (uint32_t a = tile.first_row; a <= tile.end_row; ++a) {
        clear_row<V>(sums[1]);
        clear_row<V>(sums[2]);
        if (a < d.out_h) {
          Row<V, B, kStrip + 1> codes;
          codes.fetch_from(dout.codes, image + uint64_t{a} * d.out_w * d.c, static_cast<int>(column), d.out_w,
                           d.c);
#pragma unroll
          for (int j = 0; j <= kStrip; ++j) {
            if (column + j >= d.out_w) continue;
            float pixel[V];
            decode_vector<V, B>(dout, decoder, codes.first + static_cast<uint32_t>(j) * d.c, codes.raw[j],
                                pixel);
#pragma unroll
            for (int ky = 0; ky < 3; ++ky) {
#pragma unroll
              for (int kx = 0; kx < 3; ++kx) {
                const int at = 2 * j - 1 + kx;
                if (at < 0 || at >= 2 * kStrip) continue;
#pragma unroll
                for (int v = 0; v < V; ++v)
                  sums[ky][at][v] = fmaf(pixel[v], taps[ky * 3 + kx][v], sums[ky][at][v]);
              }
            }
          }
        }
        if (a > tile.first_row) write(2 * a - 1, sums[0]);
        if (a < tile.end_row) write(2 * a, sums[1]);
        move_row<V>(sums[0], sums[2]);
      }
    }
  }
  if (!dx.stored.fp32) report(seen, dx.stats);
}

// From images (h, w) to (oh, ow); with `spread`, from dout to dx.
template <int V>
__global__ void __launch_bounds__(kThreads)
    gather(ConvExtents32 d, Cut cut, const StepState* state, StoredView x, ReadView weight, ReadView bias,
           bool spread, const __grid_constant__ WriteView out) {
  ULP_SHARED(float, shared);
  __shared__ float table[kThreads];
  const Place place(cut, blockIdx.x);
  const VectorDecoder decoder = make_vector_decoder(x, table);
  load_taps<V>(d, cut, place.chunk, state, weight, bias, false, shared);
  RangeCount seen;
  if (place.works) {
    const uint32_t channels = cut.lanes * V;
    const float* own = shared + place.lane * V;
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const uint32_t ox = u % d.out_w, oy = u / d.out_w % d.out_h, image = u / d.out_w / d.out_h;
      float sums[V];
#pragma unroll
      for (int v = 0; v < V; ++v) sums[v] = own[d.taps() * channels + v];
      for (uint32_t ky = 0; ky < d.kernel_h; ++ky) {
        uint32_t iy = 0, ix = 0;
        if (!tap_source(spread, oy, ky, d.stride_h, d.padding_h, d.h, iy)) continue;
        for (uint32_t kx = 0; kx < d.kernel_w; ++kx) {
          if (!tap_source(spread, ox, kx, d.stride_w, d.padding_w, d.w, ix)) continue;
          float pixel[V];
          load_vector<V>(x, decoder, ((uint64_t{image} * d.h + iy) * d.w + ix) * d.c + place.vector * V,
                         pixel);
          const float* tap = own + (ky * d.kernel_w + kx) * channels;
#pragma unroll
          for (int v = 0; v < V; ++v) sums[v] = fmaf(pixel[v], tap[v], sums[v]);
        }
      }
      store_vector<V>(out, state, uint64_t{u} * d.c + place.vector * V, sums, seen);
    }
  }
  if (!out.stored.fp32) report(seen, out.stats);
}

void launch_forward(const ConvExtents32& conv, const StepState* state, const StoredView& x,
                    const ReadView& weight, const ReadView& bias, bool turned, const WriteView& out,
                    Stream stream) {
  const uint32_t width = width_of(conv);
  by_width_and_bytes(width, x.bits, [&](auto v, auto b) {
    constexpr int V = decltype(v)::value, B = decltype(b)::value;
    const Cut cut = make_cut(conv, width, conv.out_h, conv.out_w,
                             conv.stride_h == 1 ? strip_of<V, B, 1>() : strip_of<V, B, 2>(), kAnyBlocks);
    launch(conv.stride_h == 1 ? forward_three<V, B, 1> : forward_three<V, B, 2>,
           grid_of(cut, 10 * cut.lanes * V), stream, conv, cut, state, x, weight, bias, turned, out);
  });
}

void launch_gather(const ConvExtents32& conv, const StepState* state, const StoredView& x,
                   const ReadView& weight, const ReadView& bias, bool spread, const WriteView& out,
                   Stream stream) {
  const uint32_t width = width_of(conv);
  const Cut cut = make_cut(conv, width, 1, conv.out_h * conv.out_w, 1, kProcessors * 16);
  by_width(width, [&](auto v) {
    constexpr int V = decltype(v)::value;
    launch(gather<V>, grid_of(cut, (conv.taps() + 1) * cut.lanes * V), stream, conv, cut, state, x, weight,
           bias, spread, out);
  });
}

}  // namespace

void depthwise_forward(const ConvExtents32& conv, const StepState* state, const StoredView& x,
                       const ReadView& weight, const ReadView* bias, const WriteView& out, Stream stream) {
  const ReadView bias_view = bias == nullptr ? ReadView{} : *bias;
  if (depthwise_quick(conv, state, x, weight, bias_view, false, out, stream)) return;
  if (three_by_three(conv)) {
    launch_forward(conv, state, x, weight, bias_view, false, out, stream);
  } else {
    launch_gather(conv, state, x, weight, bias_view, false, out, stream);
  }
}

void depthwise_grad_input(const ConvExtents32& conv, const StepState* state, const StoredView& dout,
                          const ReadView& weight, const WriteView& dx, Stream stream) {
  if (depthwise_quick(conv, state, dout, weight, {}, true, dx, stream)) return;
  if (three_by_three(conv) && conv.stride_h == 1) {
    launch_forward(conv, state, dout, weight, {}, true, dx, stream);
  } else if (three_by_three(conv)) {
    const uint32_t width = width_of(conv);
    const Cut cut =
        make_cut(conv, width, conv.out_h, conv.out_w, static_cast<uint32_t>(spread_strip(width)), kAnyBlocks);
    by_width_and_bytes(width, dout.bits, [&](auto v, auto b) {
      constexpr int V = decltype(v)::value, B = decltype(b)::value;
      launch(spread_three<V, B>, grid_of(cut, 10 * cut.lanes * V), stream, conv, cut, state, dout, weight,
             dx);
    });
  } else {
    ConvExtents32 back = conv;
    back.h = conv.out_h;
    back.w = conv.out_w;
    back.out_h = conv.h;
    back.out_w = conv.w;
    launch_gather(back, state, dout, weight, {}, true, dx, stream);
  }
}

}  // namespace ulp::cuda
