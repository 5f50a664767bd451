// Depthwise convolution for bf16: forward, and gradients of images.
#include "ulp/backend/cuda/conv/depthwise_bf16.h"

namespace ulp::cuda {
namespace {

using namespace depthwise;

constexpr int V = kQuickWidth;
constexpr int kStrip = 4;     // output columns with stride 1
constexpr int kStripTwo = 2;  // with stride 2
constexpr int kSpread = 2;    // columns of dout, over twice as many of dx

// No value up to kLimit overflows. Nonzero magnitudes become 0 if twice their pattern is at most
// kVanishing.
constexpr uint32_t kLimit = kQuickLimit - 1, kVanishing = 0x10000u;

struct Call {
  ConvExtents32 d;
  Cut cut;
  uint32_t strip;  // columns of a tile
  const StepState* state;
  StoredView in;
  ReadView weight, bias;
  bool turned;  // rotated kernel
  bool spread;  // from dout to dx with stride 2
  WriteView out;
};

// The range events that a thread counted of the values it wrote. NaN stays in `most`.
struct Seen {
  uint32_t vanished = 0;
  float most = 0;
};

// Writes N columns of an output row of `width` columns; the first is `column` and is at `at`.
template <int N>
__device__ inline void write_columns(const Call& call, const float* own, uint8_t* at, uint32_t column,
                                     uint32_t width, float (&sums)[N][V], Seen& seen) {
  if (call.bias.stored.codes != nullptr) {
    const float* bias = own + 9 * call.cut.lanes * V;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float one = bias[v];
#pragma unroll
      for (int o = 0; o < N; ++o) sums[o][v] = sums[o][v] + one;
    }
  }
  if (column + N > width) {
#pragma unroll
    for (int o = 0; o < N; ++o) {
#pragma unroll
      for (int v = 0; v < V; ++v) sums[o][v] = column + o < width ? sums[o][v] : 0;
    }
  }
  uint32_t least = 0xFFFFFFFFu;
#pragma unroll
  for (int o = 0; o < N; ++o) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      seen.most = larger(seen.most, sums[o][v]);
      const uint32_t doubled = 2 * float_bits(sums[o][v]) - 1;  // 0 wraps around
      least = doubled < least ? doubled : least;
    }
  }
  if (least < kVanishing) {
#pragma unroll
    for (int o = 0; o < N; ++o) {
#pragma unroll
      for (int v = 0; v < V; ++v) seen.vanished += vanishes(sums[o][v], kVanishing) ? 1 : 0;
    }
  }
  const auto put = [&](int o) {
    *reinterpret_cast<uint2*>(at + uint64_t{2 * call.d.c} * static_cast<uint32_t>(o)) =
        make_uint2(bf16_pair(sums[o][0], sums[o][1]), bf16_pair(sums[o][2], sums[o][3]));
  };
  if (column + N <= width) {
#pragma unroll
    for (int o = 0; o < N; ++o) put(o);
  } else {
#pragma unroll
    for (int o = 0; o + 1 < N; ++o) {
      if (column + o < width) put(o);
    }
  }
}

// The slow path: recomputes all outputs of a thread, pixel by pixel and through the scalar codec.
// Pixels outside the image are skipped, because zero times infinity would be NaN. Finite outputs
// get the same bits as before: products are added in the same order, the bias last. `own` are the
// taps of the thread's channels.
__device__ inline RangeCount write_long(const Call& call, const Place& place, const float* own) {
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
  const bool spread = call.spread;
  const uint32_t channels = cut.lanes * V, scale = spread ? 2 : 1;
  const uint32_t height = spread ? d.out_h : d.h, width = spread ? d.out_w : d.w;
  const uint32_t height_out = spread ? d.h : d.out_h, width_out = spread ? d.w : d.out_w;
  RangeCount seen;
#pragma unroll 1
  for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
    const Tile tile(cut, u, d.out_h);
    const uint64_t image = uint64_t{tile.image} * height * width * d.c + place.vector * V;
    const uint64_t image_out = uint64_t{tile.image} * height_out * width_out * d.c + place.vector * V;
    const uint32_t columns = scale * call.strip;
#pragma unroll 1
    for (uint32_t i = 0; i < scale * (tile.end_row - tile.first_row) * columns; ++i) {
      const uint32_t oy = scale * tile.first_row + i / columns, ox = tile.strip * columns + i % columns;
      if (oy >= height_out || ox >= width_out) continue;
      float made[V] = {};
#pragma unroll 1
      for (uint32_t tap = 0; tap < 9; ++tap) {
        const uint32_t k = spread ? 8 - tap : tap;
        uint32_t iy = 0, ix = 0;
        if (!tap_source(spread, oy, k / 3, d.stride_h, 1, height, iy)) continue;
        if (!tap_source(spread, ox, k % 3, d.stride_w, 1, width, ix)) continue;
        const Vector raw = fetch<V, 2>(call.in.codes, image + (uint64_t{iy} * width + ix) * d.c);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float pixel = bits_float(decode_quick(call.in.codec, raw.code(v)));
          made[v] = fmaf(pixel, own[k * channels + v], made[v]);
        }
      }
      if (call.bias.stored.codes != nullptr) {
#pragma unroll
        for (int v = 0; v < V; ++v) made[v] = made[v] + own[9 * channels + v];
      }
      store_vector<V>(call.out, call.state, image_out + (uint64_t{oy} * width_out + ox) * d.c, made, seen);
    }
  }
  return seen;
}

// The range events that a thread reports. First it recomputes results that were too large for the
// fast path.
__device__ inline RangeCount finish(const Call& call, const Place& place, const float* own,
                                    const Seen& seen) {
  if (!(seen.most <= bits_float(kLimit))) return write_long(call, place, own);
  RangeCount made;
  made.underflow = seen.vanished;
  made.amax = float_bits(seen.most);
  return made;
}

// Adds a pixel with kernel row ky to the strip's sums; j is its column relative to the first that
// they reach. A sum's first product is added to `before`.
template <int N, int S>
__device__ inline void add_pixel(int j, int ky, const float (&pixel)[V], const float (&taps)[9][V],
                                 const float (&before)[N][V], float (&sums)[N][V]) {
#pragma unroll
  for (int o = 0; o < N; ++o) {
    const int kx = j - o * S;
    if (kx < 0 || kx > 2) continue;
#pragma unroll
    for (int v = 0; v < V; ++v)
      sums[o][v] = fmaf(pixel[v], taps[ky * 3 + kx][v], kx == 0 ? before[o][v] : sums[o][v]);
  }
}

// Also the gradient of images, with the rotated kernel.
__global__ void __launch_bounds__(kThreads, 2) quick_one(ULP_TABLE(Call) call) {
  ULP_SHARED(float, shared);
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
  const Place place(cut, blockIdx.x);
  load_taps<V>(d, cut, place.chunk, call.state, call.weight, call.bias, call.turned, shared);
  RangeCount all;
  if (place.works) {
    float taps[9][V];
    const float* own = own_taps(cut, place, shared, taps);
    const uint32_t pitch = 2 * d.c, line = d.w * d.c;
    Seen seen;
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.h * line + place.vector * V;
      const uint32_t column_out = tile.strip * kStrip;
      const int column = static_cast<int>(column_out) - 1;
      // From the first row that the outputs reach to the last.
      const uint32_t first = tile.first_row > 0 ? tile.first_row - 1 : 0;
      const uint32_t last = tile.end_row < d.h ? tile.end_row : d.h - 1;
      const uint8_t* at = call.in.codes + 2 * (static_cast<int64_t>(image + uint64_t{first} * line) +
                                               static_cast<int64_t>(column) * static_cast<int64_t>(d.c));
      uint8_t* out =
          call.out.stored.codes + 2 * (image + uint64_t{tile.first_row} * line + uint64_t{column_out} * d.c);
      Vector raw[kStrip + 2];
#pragma unroll
      for (int j = 0; j < kStrip + 2; ++j) raw[j] = fetch_column(at, column, d.w, pitch, j);
      // Sums of the output rows above this row and at it.
      float above[kStrip][V], beside[kStrip][V];
      clear_row<V>(above);
      clear_row<V>(beside);
      uint32_t early = tile.first_row - first + 1;  // rows until an output row is complete
#pragma unroll 1
      for (uint32_t left = last - first + 1; left > 0; --left) {
        at += left > 1 ? uint64_t{2} * line : 0;
        float done[kStrip][V] = {}, next[kStrip][V] = {}, below[kStrip][V] = {}, none[kStrip][V];
        clear_row<V>(none);
#pragma unroll
        for (int j = 0; j < kStrip + 2; ++j) {
          float pixel[V];
          halves_to_floats(raw[j], pixel);
          raw[j] = fetch_column(at, column, d.w, pitch, j);
          add_pixel<kStrip, 1>(j, 2, pixel, taps, above, done);
          add_pixel<kStrip, 1>(j, 1, pixel, taps, beside, next);
          add_pixel<kStrip, 1>(j, 0, pixel, taps, none, below);
        }
        move_row<V>(above, next);
        move_row<V>(beside, below);
        if (early > 0) {
          --early;
          continue;
        }
        write_columns(call, own, out, column_out, d.out_w, done, seen);
        out += uint64_t{2} * line;
      }
      if (tile.end_row == d.h) write_columns(call, own, out, column_out, d.out_w, above, seen);
    }
    all = finish(call, place, own, seen);
  }
  report(all, call.out.stats);
}

// Stride 2.
__global__ void __launch_bounds__(kThreads, 2) quick_two(ULP_TABLE(Call) call) {
  ULP_SHARED(float, shared);
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
  const Place place(cut, blockIdx.x);
  load_taps<V>(d, cut, place.chunk, call.state, call.weight, call.bias, false, shared);
  RangeCount all;
  if (place.works) {
    constexpr int N = kStripTwo, kColumns = 2 * N + 1;
    float taps[9][V];
    const float* own = own_taps(cut, place, shared, taps);
    const uint32_t pitch = 2 * d.c, line = d.w * d.c;
    Seen seen;
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.h * line + place.vector * V;
      const uint32_t column_out = tile.strip * N;
      uint8_t* out = call.out.stored.codes +
                     2 * (((uint64_t{tile.image} * d.out_h + tile.first_row) * d.out_w + column_out) * d.c +
                          place.vector * V);
      const int column = static_cast<int>(column_out) * 2 - 1;
      // Row 2 first_row - 1 may lie before the image.
      const uint8_t* at =
          call.in.codes + 2 * (static_cast<int64_t>(image + uint64_t{2 * tile.first_row} * line) +
                               static_cast<int64_t>(column) * static_cast<int64_t>(d.c));
      Vector odd[kColumns], even[kColumns];
      float sums[N][V] = {}, none[N][V];
      clear_row<V>(none);
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        odd[j] = fetch_column(at - uint64_t{2} * line, column, d.w, pitch, j, tile.first_row > 0);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) even[j] = fetch_column(at, column, d.w, pitch, j);
      at += uint64_t{2} * line;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        float pixel[V];
        halves_to_floats(odd[j], pixel);
        odd[j] = fetch_column(at, column, d.w, pitch, j, 2 * tile.first_row + 1 < d.h);
        add_pixel<N, 2>(j, 0, pixel, taps, none, sums);
      }
#pragma unroll 1
      for (uint32_t oy = tile.first_row; oy < tile.end_row; ++oy) {
        const bool more = oy + 1 < tile.end_row;
        float made[N][V] = {}, below[N][V] = {};
        at += uint64_t{2} * line;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float pixel[V];
          halves_to_floats(even[j], pixel);
          even[j] = fetch_column(at, column, d.w, pitch, j, more);
          add_pixel<N, 2>(j, 1, pixel, taps, sums, made);
        }
        at += uint64_t{2} * line;
        move_row<V>(sums, made);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float pixel[V];
          halves_to_floats(odd[j], pixel);
          odd[j] = fetch_column(at, column, d.w, pitch, j, more && 2 * oy + 3 < d.h);
          add_pixel<N, 2>(j, 2, pixel, taps, sums, made);
          add_pixel<N, 2>(j, 0, pixel, taps, none, below);
        }
        write_columns(call, own, out, column_out, d.out_w, made, seen);
        move_row<V>(sums, below);
        out += uint64_t{2} * d.out_w * d.c;
      }
    }
    all = finish(call, place, own, seen);
  }
  report(all, call.out.stats);
}

// The gradient of images with stride 2. Output (a, b) covers the pixels of rows 2a - 1, 2a and 2a +
// 1, and of columns 2b - 1, 2b and 2b + 1.
__global__ void __launch_bounds__(kThreads, 2) quick_spread(ULP_TABLE(Call) call) {
  ULP_SHARED(float, shared);
  const ConvExtents32& d = call.d;
  const Cut& cut = call.cut;
  const Place place(cut, blockIdx.x);
  load_taps<V>(d, cut, place.chunk, call.state, call.weight, ReadView{}, false, shared);
  RangeCount all;
  if (place.works) {
    constexpr int N = kSpread;
    float taps[9][V];
    const float* own = own_taps(cut, place, shared, taps);
    const uint32_t pitch = 2 * d.c, line = d.out_w * d.c, line_dx = d.w * d.c;
    Seen seen;
    for (uint32_t u = place.worker; u < cut.tiles; u += cut.blocks * cut.workers) {
      const Tile tile(cut, u, d.out_h);
      const uint64_t image = uint64_t{tile.image} * d.out_h * line + place.vector * V;
      const uint32_t column = tile.strip * N;
      uint8_t* dx = call.out.stored.codes + 2 * (uint64_t{tile.image} * d.h * line_dx +
                                                 uint64_t{2 * column} * d.c + place.vector * V);
      const uint8_t* at =
          call.in.codes + 2 * (image + uint64_t{tile.first_row} * line + uint64_t{column} * d.c);
      Vector raw[N + 1];
#pragma unroll
      for (int j = 0; j <= N; ++j) raw[j] = fetch_column(at, static_cast<int>(column), d.out_w, pitch, j);
      float sums[2 * N][V];  // of row 2a - 1
      clear_row<V>(sums);
#pragma unroll 1
      for (uint32_t a = tile.first_row; a <= tile.end_row; ++a) {
        float pixel[N + 1][V];
        at += uint64_t{2} * line;
#pragma unroll
        for (int j = 0; j <= N; ++j) {
          halves_to_floats(raw[j], pixel[j]);
          raw[j] = fetch_column(at, static_cast<int>(column), d.out_w, pitch, j,
                                a < tile.end_row && a + 1 < d.out_h);
        }
        const auto add = [&](int ky, float(&to)[2 * N][V]) {
#pragma unroll
          for (int j = 0; j <= N; ++j) {
#pragma unroll
            for (int kx = 0; kx < 3; ++kx) {
              const int x = 2 * j - 1 + kx;
              if (x < 0 || x >= 2 * N) continue;
#pragma unroll
              for (int v = 0; v < V; ++v) to[x][v] = fmaf(pixel[j][v], taps[ky * 3 + kx][v], to[x][v]);
            }
          }
        };
        const auto write = [&](uint32_t y, float(&made)[2 * N][V]) {
          write_columns(call, own, dx + uint64_t{y} * 2 * line_dx, 2 * column, d.w, made, seen);
        };
        if (a > tile.first_row && 2 * a - 1 < d.h) {
          add(0, sums);
          write(2 * a - 1, sums);
        }
        if (a < tile.end_row) {
          clear_row<V>(sums);
          add(1, sums);
          write(2 * a, sums);
        }
        clear_row<V>(sums);
        add(2, sums);
      }
    }
    all = finish(call, place, own, seen);
  }
  report(all, call.out.stats);
}

}  // namespace

bool depthwise_quick(const ConvExtents32& conv, const StepState* state, const StoredView& in,
                     const ReadView& weight, const ReadView& bias, bool back, const WriteView& out,
                     Stream stream) {
  if (!quick_extents(conv) || !quick_codes(in) || !quick_codes(out.stored) ||
      out.mode != Round::nearest_even || out.sums)
    return false;
  const bool one = conv.stride_h == 1;
  const uint32_t strip = one ? kStrip : back ? kSpread : kStripTwo;
  const Cut cut = make_cut(conv, V, conv.out_h, conv.out_w, strip, kAnyBlocks);
  const Call call{conv, cut, strip, state, in, weight, bias, back && one, back && !one, out};
  launch(one ? quick_one : back ? quick_spread : quick_two, grid_of(cut, 10 * cut.lanes * V), stream, call);
  return true;
}

}  // namespace ulp::cuda
