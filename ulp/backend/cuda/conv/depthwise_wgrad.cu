// Depthwise convolution: gradients of weights.
#include "ulp/backend/cuda/conv/depthwise_device.h"

namespace ulp::cuda {
namespace {

using namespace depthwise;

// Columns of a strip. Two for four channels: a wider strip does not fit registers.
constexpr int strip_for(uint32_t width, uint32_t stride) { return stride == 1 && width < 4 ? 4 : 2; }
template <int V, int S>
constexpr int strip() {
  return strip_for(V, S);
}

// A strip's gradients in an output row; 0 outside.
template <int V, int B, int N>
__device__ inline void load_row(const ConvExtents32& d, const StoredView& dout, const VectorDecoder& decoder,
                                uint64_t row, uint32_t column, float (&to)[N][V]) {
  Row<V, B, N> codes;
  codes.fetch_from(dout.codes, row, static_cast<int>(column), d.out_w, d.c);
#pragma unroll
  for (int o = 0; o < N; ++o) {
    if (column + o >= d.out_w) continue;
    decode_vector<V, B>(dout, decoder, codes.first + static_cast<uint32_t>(o) * d.c, codes.raw[o], to[o]);
  }
}

// Adds the products of an image row with Count rows of gradients; it meets the i-th with kernel row
// First - Step * i. Not `Whole`: only rows whose bit of `live` is set, and only columns that exist;
// the others are skipped, because zero times infinity would be NaN.
template <bool Whole, int V, int B, int S, int First, int Count, int Step, int Slots>
__device__ inline void add_products(const ConvExtents32& d, const StoredView& x, const VectorDecoder& decoder,
                                    const Row<V, B, (strip<V, S>() - 1) * S + 3>& codes, int column,
                                    uint32_t live, uint32_t there,
                                    const float (&gradients)[Slots][strip<V, S>()][V], float (&sums)[9][V]) {
#pragma unroll
  for (int j = 0; j < (strip<V, S>() - 1) * S + 3; ++j) {
    if (static_cast<uint32_t>(column + j) >= d.w) continue;
    float pixel[V];
    decode_vector<V, B>(x, decoder, codes.first + static_cast<uint32_t>(j) * d.c, codes.raw[j], pixel);
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      if (!Whole && (live >> i & 1) == 0) continue;
#pragma unroll
      for (int o = 0; o < strip<V, S>(); ++o) {
        const int kx = j - o * S;
        if (kx < 0 || kx > 2) continue;
        if (!Whole && static_cast<uint32_t>(o) >= there) continue;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          float& sum = sums[(First - Step * i) * 3 + kx][v];
          sum = fmaf(pixel[v], gradients[i][o][v], sum);
        }
      }
    }
  }
}

// Each block writes its sums to `partials`: [block of the chunk][tap][channel].
template <int V, int B, int S>
__global__ void __launch_bounds__(kThreads, 2)
    weight_three(ConvExtents32 d, Cut cut, StoredView x, StoredView dout, double* partials) {
  ULP_SHARED(float, shared);
  __shared__ float table[kThreads], dout_table[kThreads];
  constexpr int kStrip = strip<V, S>(), kRows = S == 1 ? 3 : 2;
  const Place place(cut, blockIdx.x);
  const VectorDecoder decoder = make_vector_decoder(x, table),
                      dout_decoder = make_vector_decoder(dout, dout_table);
  __syncthreads();
  const uint32_t channels = cut.lanes * V;
  if (place.works) {
    float sums[9][V] = {};
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.h * d.w * d.c + place.vector * V;
      const uint64_t image_out = uint64_t{tile.image} * d.out_h * d.out_w * d.c + place.vector * V;
      const uint32_t column_out = tile.strip * kStrip;
      const int column = static_cast<int>(column_out) * S - 1;
      const uint32_t there = d.out_w - column_out < kStrip ? d.out_w - column_out : kStrip;
      const int first = static_cast<int>(tile.first_row), end = static_cast<int>(tile.end_row);
      float gradients[kRows][kStrip][V];
      const auto load = [&](int oy, float(&to)[kStrip][V]) {
        const uint64_t at = image_out + static_cast<uint64_t>(oy) * d.out_w * d.c;
        if (dout.bits == 8) {
          load_row<V, 1>(d, dout, dout_decoder, at, column_out, to);
        } else if (dout.bits == 16) {
          load_row<V, 2>(d, dout, dout_decoder, at, column_out, to);
        } else {
          load_row<V, 4>(d, dout, dout_decoder, at, column_out, to);
        }
      };
      Row<V, B, (strip<V, S>() - 1) * S + 3> codes;
      const auto fetch_row = [&](int row) {
        if (static_cast<uint32_t>(row) >= d.h) return false;
        codes.fetch_from(x.codes, image + static_cast<uint64_t>(row) * d.w * d.c, column, d.w, d.c);
        return true;
      };
#pragma unroll
      for (int i = 0; i < kRows; ++i) clear_row<V>(gradients[i]);
      if constexpr (S == 1) {
#pragma unroll 1
        for (int row = first - 1; row <= end; ++row) {
          const bool inside = fetch_row(row);
          if (row + 1 < end) load(row + 1, gradients[2]);
          const uint32_t live =
              (row > first ? 1u : 0u) | (row >= first && row < end ? 2u : 0u) | (row + 1 < end ? 4u : 0u);
          if (inside && live == 7 && there == kStrip) {
            add_products<true, V, B, S, 2, 3, 1>(d, x, decoder, codes, column, live, there, gradients, sums);
          } else if (inside) {
            add_products<false, V, B, S, 2, 3, 1>(d, x, decoder, codes, column, live, there, gradients, sums);
          }
          move_row<V>(gradients[0], gradients[1]);
          move_row<V>(gradients[1], gradients[2]);
        }
      } else {
        load(first, gradients[0]);
        if (fetch_row(first * S - 1)) {
          add_products<false, V, B, S, 0, 1, 0>(d, x, decoder, codes, column, 1, there, gradients, sums);
        }
#pragma unroll 1
        for (int oy = first; oy < end; ++oy) {
          // Row 2 oy always exists.
          fetch_row(oy * S);
          const bool more = oy + 1 < end;
          if (more) load(oy + 1, gradients[1]);
          if (there == kStrip) {
            add_products<true, V, B, S, 1, 1, 0>(d, x, decoder, codes, column, 1, there, gradients, sums);
          } else {
            add_products<false, V, B, S, 1, 1, 0>(d, x, decoder, codes, column, 1, there, gradients, sums);
          }
          if (fetch_row(oy * S + 1)) {
            const uint32_t live = more ? 3 : 1;
            if (more && there == kStrip) {
              add_products<true, V, B, S, 2, 2, 2>(d, x, decoder, codes, column, live, there, gradients,
                                                   sums);
            } else {
              add_products<false, V, B, S, 2, 2, 2>(d, x, decoder, codes, column, live, there, gradients,
                                                    sums);
            }
          }
          move_row<V>(gradients[0], gradients[1]);
        }
      }
    }
    float* own = shared + threadIdx.x / cut.lanes * 9 * channels + place.lane * V;
#pragma unroll
    for (int k = 0; k < 9; ++k) {
#pragma unroll
      for (int v = 0; v < V; ++v) own[k * channels + v] = sums[k][v];
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < 9 * channels; i += blockDim.x) {
    const uint32_t channel = place.chunk * channels + i % channels;
    if (channel >= d.c) continue;
    double sum = 0;
    for (uint32_t k = 0; k < cut.workers; ++k) sum += static_cast<double>(shared[k * 9 * channels + i]);
    partials[(uint64_t{blockIdx.x / cut.chunks} * 9 + i / channels) * d.c + channel] = sum;
  }
}

// Blocks of one tap each.
template <int V>
__global__ void __launch_bounds__(kThreads)
    weight_taps(ConvExtents32 d, Cut cut, StoredView x, StoredView dout, double* partials) {
  ULP_SHARED(float, shared);
  __shared__ float table[kThreads], dout_table[kThreads];
  const uint32_t taps = d.taps(), tap = blockIdx.x % taps, block = blockIdx.x / taps;
  const Place place(cut, block);
  const VectorDecoder decoder = make_vector_decoder(x, table),
                      dout_decoder = make_vector_decoder(dout, dout_table);
  __syncthreads();
  const uint32_t channels = cut.lanes * V;
  if (place.works) {
    float sums[V] = {};
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const uint32_t ox = u % d.out_w, oy = u / d.out_w % d.out_h, image = u / d.out_w / d.out_h;
      uint32_t iy = 0, ix = 0;
      if (!tap_source(false, oy, tap / d.kernel_w, d.stride_h, d.padding_h, d.h, iy)) continue;
      if (!tap_source(false, ox, tap % d.kernel_w, d.stride_w, d.padding_w, d.w, ix)) continue;
      float pixel[V], gradient[V];
      load_vector<V>(x, decoder, ((uint64_t{image} * d.h + iy) * d.w + ix) * d.c + place.vector * V, pixel);
      load_vector<V>(dout, dout_decoder, uint64_t{u} * d.c + place.vector * V, gradient);
#pragma unroll
      for (int v = 0; v < V; ++v) sums[v] = fmaf(pixel[v], gradient[v], sums[v]);
    }
    float* own = shared + threadIdx.x / cut.lanes * channels + place.lane * V;
#pragma unroll
    for (int v = 0; v < V; ++v) own[v] = sums[v];
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < channels; i += blockDim.x) {
    const uint32_t channel = place.chunk * channels + i;
    if (channel >= d.c) continue;
    double sum = 0;
    for (uint32_t k = 0; k < cut.workers; ++k) sum += static_cast<double>(shared[k * channels + i]);
    partials[(uint64_t{block / cut.chunks} * taps + tap) * d.c + channel] = sum;
  }
}

// One warp per weight: its lanes take blocks in turn and combine in a fixed order.
__global__ void reduce_blocks(uint32_t c, uint32_t taps, uint32_t blocks, const double* partials,
                              float* out) {
  const uint32_t lane = threadIdx.x % 32, weights = c * taps;
  for (uint32_t i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < weights;
       i += gridDim.x * (blockDim.x / 32)) {
    double sum = 0;
    for (uint32_t k = lane; k < blocks; k += 32) {
      sum += partials[(uint64_t{k} * taps + i % taps) * c + i / taps];
    }
    for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, k);
    if (lane == 0) out[i] = settle_nan(static_cast<float>(sum));
  }
}

Cut weight_cut(const ConvExtents32& conv) {
  const uint32_t width = width_of(conv);
  if (three_by_three(conv)) {
    return make_cut(conv, width, conv.out_h, conv.out_w,
                    static_cast<uint32_t>(strip_for(width, conv.stride_h)), kSumBlocks);
  }
  return make_cut(conv, width, 1, conv.out_h * conv.out_w, 1, kSumBlocks / 4);
}

}  // namespace

size_t depthwise_partials(const ConvExtents32& conv) {
  const uint32_t blocks = weight_cut(conv).blocks, quick = depthwise_quick_blocks(conv);
  return size_t{blocks > quick ? blocks : quick} * conv.taps() * conv.c;
}

void depthwise_grad_weight(const ConvExtents32& conv, const StoredView& x, const StoredView& dout,
                           double* partials, float* dweight, Stream stream) {
  const uint32_t width = width_of(conv), taps = conv.taps();
  const Cut cut = weight_cut(conv);
  uint32_t blocks = cut.blocks;
  if (depthwise_quick_weight(conv, x, dout, partials, stream)) {
    blocks = depthwise_quick_blocks(conv);
  } else if (three_by_three(conv)) {
    by_width_and_bytes(width, x.bits, [&](auto v, auto b) {
      constexpr int V = decltype(v)::value, B = decltype(b)::value;
      launch(conv.stride_h == 1 ? weight_three<V, B, 1> : weight_three<V, B, 2>,
             grid_of(cut, size_t{9} * cut.workers * cut.lanes * V), stream, conv, cut, x, dout, partials);
    });
  } else {
    by_width(width, [&](auto v) {
      constexpr int V = decltype(v)::value;
      launch(weight_taps<V>,
             {cut.chunks * cut.blocks * taps, kThreads, sizeof(float) * cut.workers * cut.lanes * V}, stream,
             conv, cut, x, dout, partials);
    });
  }
  launch(reduce_blocks, {blocks_for(uint64_t{conv.c} * taps * 32), kThreads}, stream, conv.c, taps, blocks,
         static_cast<const double*>(partials), dweight);
}

}  // namespace ulp::cuda
