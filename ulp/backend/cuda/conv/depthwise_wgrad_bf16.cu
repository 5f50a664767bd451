// Depthwise convolution for bf16: gradients of weights.
#include "ulp/backend/cuda/conv/depthwise_bf16.h"

namespace ulp::cuda {
namespace {

using namespace depthwise;

constexpr int V = kQuickWidth;
// Columns of gradients in a strip.
constexpr int strip_of(uint32_t stride) { return stride == 1 ? 4 : 2; }

struct Call {
  ConvExtents32 d;
  Cut cut;
  uint32_t strip;
  StoredView x, dout;
  double* partials;
};

// Adds the products of a pixel with the strip's gradients that it meets with kernel row ky; j is
// its column relative to the first that they reach.
template <int N, int S>
__device__ inline void add_products(int j, int ky, const float (&pixel)[V], const float (&gradients)[N][V],
                                    float (&sums)[9][V]) {
#pragma unroll
  for (int o = 0; o < N; ++o) {
    const int kx = j - o * S;
    if (kx < 0 || kx > 2) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) sums[ky * 3 + kx][v] = fmaf(pixel[v], gradients[o][v], sums[ky * 3 + kx][v]);
  }
}

// A thread's tiles with stride 1.
__device__ inline void add_units_one(const Call& call, const Place& place, float (&sums)[9][V]) {
  constexpr int N = strip_of(1);
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
  const uint32_t pitch = 2 * d.c, line = d.w * d.c;
  for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
    const Tile tile(cut, u, d.out_h);
    const uint64_t image = uint64_t{tile.image} * d.h * line + place.vector * V;
    const uint32_t column_out = tile.strip * N;
    const int column = static_cast<int>(column_out) - 1;
    // From the first row that the gradients reach to the last.
    const uint32_t first = tile.first_row > 0 ? tile.first_row - 1 : 0;
    const uint32_t last = tile.end_row < d.h ? tile.end_row : d.h - 1;
    const uint8_t* at = call.x.codes + 2 * (static_cast<int64_t>(image + uint64_t{first} * line) +
                                            static_cast<int64_t>(column) * static_cast<int64_t>(d.c));
    const uint8_t* from =
        call.dout.codes + 2 * (image + uint64_t{tile.first_row} * line + uint64_t{column_out} * d.c);
    uint32_t gradients = tile.end_row - tile.first_row;  // rows of gradients not loaded yet
    Vector raw[N + 2], raw_dout[N];
    const auto fetch_gradients = [&] {
#pragma unroll
      for (int o = 0; o < N; ++o)
        raw_dout[o] = fetch_column(from, static_cast<int>(column_out), d.w, pitch, o, gradients > 0);
      gradients -= gradients > 0 ? 1 : 0;
      from += gradients > 0 ? uint64_t{2} * line : 0;
    };
    const auto decode_gradients = [&](float(&to)[N][V]) {
#pragma unroll
      for (int o = 0; o < N; ++o) halves_to_floats(raw_dout[o], to[o]);
    };
#pragma unroll
    for (int j = 0; j < N + 2; ++j) raw[j] = fetch_column(at, column, d.w, pitch, j);
    fetch_gradients();
    // Gradients of the rows above, at and below an image row; they rotate from row to row.
    float a[N][V], b[N][V], c[N][V];
    clear_row<V>(a);
    clear_row<V>(b);
    if (first == tile.first_row) {
      decode_gradients(b);
      fetch_gradients();
    }
    const auto add_row = [&](const float(&above)[N][V], const float(&beside)[N][V], float(&below)[N][V],
                             bool more) {
      decode_gradients(below);
      fetch_gradients();
      at += more ? uint64_t{2} * line : 0;
#pragma unroll
      for (int j = 0; j < N + 2; ++j) {
        float pixel[V];
        halves_to_floats(raw[j], pixel);
        raw[j] = fetch_column(at, column, d.w, pitch, j);
        add_products<N, 1>(j, 2, pixel, above, sums);
        add_products<N, 1>(j, 1, pixel, beside, sums);
        add_products<N, 1>(j, 0, pixel, below, sums);
      }
    };
#pragma unroll 1
    for (uint32_t left = last - first + 1;; left -= 3) {
      add_row(a, b, c, left > 1);
      if (left <= 1) break;
      add_row(b, c, a, left > 2);
      if (left <= 2) break;
      add_row(c, a, b, left > 3);
      if (left <= 3) break;
    }
  }
}

// The same with stride 2.
__device__ inline void add_units_two(const Call& call, const Place& place, float (&sums)[9][V]) {
  constexpr int N = strip_of(2), kColumns = 2 * N + 1;
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
  const uint32_t pitch = 2 * d.c, line = d.w * d.c, line_out = d.out_w * d.c;
  for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
    const Tile tile(cut, u, d.out_h);
    const uint64_t image = uint64_t{tile.image} * d.h * line + place.vector * V;
    const uint64_t image_out = uint64_t{tile.image} * d.out_h * line_out + place.vector * V;
    const uint32_t column_out = tile.strip * N;
    const int column = static_cast<int>(column_out) * 2 - 1;
    const uint8_t* at =
        call.x.codes + 2 * (static_cast<int64_t>(image + uint64_t{2 * tile.first_row} * line) +
                            static_cast<int64_t>(column) * static_cast<int64_t>(d.c));
    const uint8_t* from =
        call.dout.codes + 2 * (image_out + uint64_t{tile.first_row} * line_out + uint64_t{column_out} * d.c);
    Vector odd[kColumns], even[kColumns], raw_dout[N];
    // The row before, which may lie before the image.
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      odd[j] = fetch_column(at - uint64_t{2} * line, column, d.w, pitch, j, tile.first_row > 0);
#pragma unroll
    for (int o = 0; o < N; ++o)
      raw_dout[o] = fetch_column(from, static_cast<int>(column_out), d.out_w, pitch, o);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) even[j] = fetch_column(at, column, d.w, pitch, j);
    float gradients[N][V];
    clear_row<V>(gradients);
    uint32_t next = tile.first_row;  // row of gradients in raw_dout
    // Row 2 next - 1 meets the gradients above and below it, row 2 next only the latter.
#pragma unroll 1
    for (;; ++next) {
      float below[N][V];
#pragma unroll
      for (int o = 0; o < N; ++o) halves_to_floats(raw_dout[o], below[o]);
      from += uint64_t{2} * line_out;
      at += uint64_t{2} * line;
      const bool more = next + 1 < tile.end_row, reached = next < tile.end_row;
#pragma unroll
      for (int o = 0; o < N; ++o)
        raw_dout[o] = fetch_column(from, static_cast<int>(column_out), d.out_w, pitch, o, more);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        float pixel[V];
        halves_to_floats(odd[j], pixel);
        odd[j] = fetch_column(at, column, d.w, pitch, j, reached && 2 * next + 1 < d.h);
        add_products<N, 2>(j, 2, pixel, gradients, sums);
        add_products<N, 2>(j, 0, pixel, below, sums);
      }
      if (!reached) break;
      at += uint64_t{2} * line;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        float pixel[V];
        halves_to_floats(even[j], pixel);
        even[j] = fetch_column(at, column, d.w, pitch, j, more);
        add_products<N, 2>(j, 1, pixel, below, sums);
      }
      move_row<V>(gradients, below);
    }
  }
}

// The slow path: recomputes all sums of a thread, tap by tap. Pixels outside the image are skipped,
// because zero times infinity would be NaN.
__device__ inline void add_long(const Call& call, const Place& place, float* own) {
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
#pragma unroll 1
  for (uint32_t k = 0; k < 9; ++k) {
    float sums[V] = {};
#pragma unroll 1
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.h * d.w * d.c + place.vector * V;
      const uint64_t image_out = uint64_t{tile.image} * d.out_h * d.out_w * d.c + place.vector * V;
#pragma unroll 1
      for (uint32_t i = 0; i < (tile.end_row - tile.first_row) * call.strip; ++i) {
        const uint32_t oy = tile.first_row + i / call.strip, ox = tile.strip * call.strip + i % call.strip;
        uint32_t iy = 0, ix = 0;
        if (ox >= d.out_w || !tap_source(false, oy, k / 3, d.stride_h, 1, d.h, iy) ||
            !tap_source(false, ox, k % 3, d.stride_w, 1, d.w, ix))
          continue;
        const Vector pixel = fetch<V, 2>(call.x.codes, image + (uint64_t{iy} * d.w + ix) * d.c);
        const Vector gradient = fetch<V, 2>(call.dout.codes, image_out + (uint64_t{oy} * d.out_w + ox) * d.c);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sums[v] = fmaf(bits_float(decode_quick(call.x.codec, pixel.code(v))),
                         bits_float(decode_quick(call.dout.codec, gradient.code(v))), sums[v]);
        }
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) own[k * cut.lanes * V + v] = sums[v];
  }
}

// Each block writes its sums to `partials`: [block of the chunk][tap][channel].
template <int S>
__global__ void __launch_bounds__(kThreads, 2) quick_weight(ULP_TABLE(Call) call) {
  ULP_SHARED(float, shared);
  const Cut& cut = call.cut;
  const Place place(cut, blockIdx.x);
  const uint32_t channels = cut.lanes * V;
  if (place.works) {
    float sums[9][V] = {};
    if constexpr (S == 1) {
      add_units_one(call, place, sums);
    } else {
      add_units_two(call, place, sums);
    }
    float* own = shared + threadIdx.x / cut.lanes * 9 * channels + place.lane * V;
    bool finite = true;
#pragma unroll
    for (int k = 0; k < 9; ++k) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        own[k * channels + v] = sums[k][v];
        finite = finite && (float_bits(sums[k][v]) & 0x7F800000u) != 0x7F800000u;
      }
    }
    if (!finite) add_long(call, place, own);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < 9 * channels; i += blockDim.x) {
    const uint32_t channel = place.chunk * channels + i % channels;
    if (channel >= call.d.c) continue;
    double sum = 0;
    for (uint32_t k = 0; k < cut.workers; ++k) sum += static_cast<double>(shared[k * 9 * channels + i]);
    call.partials[(uint64_t{blockIdx.x / cut.chunks} * 9 + i / channels) * call.d.c + channel] = sum;
  }
}

Cut weight_cut(const ConvExtents32& conv) {
  return make_cut(conv, V, conv.out_h, conv.out_w, static_cast<uint32_t>(strip_of(conv.stride_h)),
                  kSumBlocks);
}

}  // namespace

uint32_t depthwise_quick_blocks(const ConvExtents32& conv) {
  return quick_extents(conv) ? weight_cut(conv).blocks : 0;
}

bool depthwise_quick_weight(const ConvExtents32& conv, const StoredView& x, const StoredView& dout,
                            double* partials, Stream stream) {
  if (!quick_extents(conv) || !quick_codes(x) || !quick_codes(dout)) return false;
  const Cut cut = weight_cut(conv);
  const Call call{conv, cut, static_cast<uint32_t>(strip_of(conv.stride_h)), x, dout, partials};
  launch(conv.stride_h == 1 ? quick_weight<1> : quick_weight<2>,
         grid_of(cut, size_t{9} * cut.workers * cut.lanes * V), stream, call);
  return true;
}

}  // namespace ulp::cuda
