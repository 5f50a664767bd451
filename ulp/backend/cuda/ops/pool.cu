#include "ulp/backend/cuda/ops/pool.h"

#include "ulp/backend/cuda/access/index.h"
#include "ulp/backend/cuda/elementwise/fused_groups.h"
#include "ulp/backend/elementwise.h"

namespace ulp::cuda {
namespace {

// The position of an element in images of h by w pixels.
struct Spot {
  uint64_t image;
  int y, x;
  uint32_t channel;
};
__device__ inline Spot spot_of(uint64_t element, uint32_t h, uint32_t w, uint32_t c) {
  const Divided pixel = divide(element, c), row = divide(pixel.quotient, w), image = divide(row.quotient, h);
  return {image.quotient, static_cast<int>(image.rest), static_cast<int>(row.rest), pixel.rest};
}

// The positions within a window that lie in the image.
struct Span {
  int first, last;  // `last` is exclusive
};
__device__ inline Span inside(int start, int kernel, int extent) {
  return {start < 0 ? -start : 0, kernel < extent - start ? kernel : extent - start};
}

// The windows that cover a place: place + padding = window * stride + k, 0 <= k < kernel.
__device__ inline Span covering(int place, int kernel, int stride, int windows) {
  const int last = place / stride + 1, above = place - kernel + stride;
  return {above > 0 ? above / stride : 0, last < windows ? last : windows};
}

// Calls visit(image element, place in the window) for the image elements in a window, in order.
template <typename Visit>
__device__ inline void for_window(const ConvExtents32& d, uint64_t out, Visit visit) {
  const Spot o = spot_of(out, d.out_h, d.out_w, d.c);
  const int y = o.y * static_cast<int>(d.stride_h) - static_cast<int>(d.padding_h);
  const int x = o.x * static_cast<int>(d.stride_w) - static_cast<int>(d.padding_w);
  const Span rows = inside(y, static_cast<int>(d.kernel_h), static_cast<int>(d.h));
  const Span columns = inside(x, static_cast<int>(d.kernel_w), static_cast<int>(d.w));
  for (int ky = rows.first; ky < rows.last; ++ky) {
    const uint64_t row = (o.image * d.h + static_cast<uint32_t>(y + ky)) * d.w;
    for (int kx = columns.first; kx < columns.last; ++kx) {
      visit((row + static_cast<uint32_t>(x + kx)) * d.c + o.channel,
            static_cast<uint32_t>(ky) * d.kernel_w + static_cast<uint32_t>(kx));
    }
  }
}

// Calls visit(output element, place in its window) for the windows that contain an image element,
// in order.
template <typename Visit>
__device__ inline void for_covering(const ConvExtents32& d, uint64_t in, Visit visit) {
  const Spot i = spot_of(in, d.h, d.w, d.c);
  const int y = i.y + static_cast<int>(d.padding_h), x = i.x + static_cast<int>(d.padding_w);
  const Span rows =
      covering(y, static_cast<int>(d.kernel_h), static_cast<int>(d.stride_h), static_cast<int>(d.out_h));
  const Span columns =
      covering(x, static_cast<int>(d.kernel_w), static_cast<int>(d.stride_w), static_cast<int>(d.out_w));
  for (int oy = rows.first; oy < rows.last; ++oy) {
    const uint64_t row = (i.image * d.out_h + static_cast<uint32_t>(oy)) * d.out_w;
    const int ky = y - oy * static_cast<int>(d.stride_h);
    for (int ox = columns.first; ox < columns.last; ++ox) {
      const int kx = x - ox * static_cast<int>(d.stride_w);
      visit((row + static_cast<uint32_t>(ox)) * d.c + i.channel,
            static_cast<uint32_t>(ky) * d.kernel_w + static_cast<uint32_t>(kx));
    }
  }
}

__device__ inline bool is_nan(float x) { return (float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u; }

// The maximum for `width` elements from `at` on, in one row of channels.
template <int width>
__device__ inline void largest(const ConvExtents32& d, const StoredView& x, uint64_t at, float (&best)[width],
                               uint32_t (&place)[width]) {
  bool any = false;
  for_window(d, at, [&](uint64_t element, uint32_t k) {
    float here[width];
    load_some<width>(x, element, here);
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const bool larger = here[i] > best[i] || (is_nan(here[i]) && !is_nan(best[i]));
      if (any && !larger) continue;
      best[i] = here[i];
      place[i] = k;
    }
    any = true;
  });
}

struct MaxGrad {
  ConvExtents32 d;
  StoredView dout;
  const uint8_t* index;
  template <int width>
  __device__ void make(uint64_t at, float (&dx)[width]) const {
    for_covering(d, at, [&](uint64_t element, uint32_t k) {
      uint32_t place[width];
      if constexpr (width == 8) {
        load_codes(index, 8, element / kGroup, kGroup, place);
      } else {
        place[0] = index[element];
      }
      float grad[width];
      load_some<width>(dout, element, grad);
#pragma unroll
      for (int i = 0; i < width; ++i)
        dx[i] = place[i] == k ? elementwise::Add::forward(dx[i], grad[i]) : dx[i];
    });
  }
};

// The average of windows, or its gradient (`back`).
template <bool back>
struct Average {
  ConvExtents32 d;
  StoredView in;
  template <int width>
  __device__ void make(uint64_t at, float (&mean)[width]) const {
    const auto add = [&](uint64_t element, uint32_t) {
      float here[width];
      load_some<width>(in, element, here);
#pragma unroll
      for (int i = 0; i < width; ++i) mean[i] += here[i];
    };
    if constexpr (back) {
      for_covering(d, at, add);
    } else {
      for_window(d, at, add);
    }
    const auto size = static_cast<float>(d.taps());
#pragma unroll
    for (int i = 0; i < width; ++i) mean[i] = settle_nan(mean[i] / size);
  }
};

struct GlobalGrad {
  uint32_t pixels, channels;
  StoredView dout;
  template <int width>
  __device__ void make(uint64_t at, float (&dx)[width]) const {
    const Divided pixel = divide(at, channels);
    load_some<width>(dout, divide(pixel.quotient, pixels).quotient * channels + pixel.rest, dx);
    const auto size = static_cast<float>(pixels);
#pragma unroll
    for (int i = 0; i < width; ++i) dx[i] = settle_nan(dx[i] / size);
  }
};

// `whole`: channels are a multiple of eight, so that a group lies within a pixel.
template <bool whole>
__global__ void max_pool_groups(ConvExtents32 d, StoredView x, WriteView out, uint8_t* index,
                                const StepState* state) {
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups_of(out.stored.elements);
       g += uint64_t{gridDim.x} * blockDim.x) {
    float best[8] = {};
    uint32_t place[8] = {};
    const uint32_t count = count_in(out.stored, g);
    if constexpr (whole) {
      largest<8>(d, x, g * kGroup, best, place);
    } else {
      for (uint32_t i = 0; i < count; ++i) {
        float one[1] = {};
        uint32_t k[1] = {};
        largest<1>(d, x, g * kGroup + i, one, k);
        set_at(best, i, one[0]);
        set_at(place, i, k[0]);
      }
    }
    store(out, *state, g, best, seen);
    store_codes(index, 8, g, count, place);
  }
  report(seen, out.stats);
}

// The arguments are read in place. Copies of them, which references in lambdas ask for, would take 93
// registers instead of 80, and with them a block of a multiprocessor.
template <typename Make, bool whole>
__global__ void __launch_bounds__(kThreads)
    make_groups(const __grid_constant__ Make make, const __grid_constant__ WriteView out,
                const StepState* state) {
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups_of(out.stored.elements);
       g += uint64_t{gridDim.x} * blockDim.x) {
    float x[8] = {};
    if constexpr (whole) {
      make.template make<8>(g * kGroup, x);
    } else {
      const uint32_t count = count_in(out.stored, g);
      for (uint32_t i = 0; i < count; ++i) {
        float one[1] = {};
        make.template make<1>(g * kGroup + i, one);
        set_at(x, i, one[0]);
      }
    }
    store(out, *state, g, x, seen);
  }
  report(seen, out.stats);
}

// Four lanes per group of the result, each with every fourth pixel; a warp has eight neighbouring
// groups.
constexpr uint32_t kMembers = 4, kGroupsOfWarp = 32 / kMembers;

__global__ void global_average_groups(uint32_t pixels, uint32_t channels, StoredView x, WriteView out,
                                      const StepState* state) {
  RangeCount seen;
  const bool whole = channels % kGroup == 0;
  const uint32_t lane = threadIdx.x % 32, member = lane / kGroupsOfWarp,
                 groups_of_block = blockDim.x / kMembers;
  const uint64_t groups = groups_of(out.stored.elements);
  // All lanes loop equally often, because they exchange sums.
  for (uint64_t first = uint64_t{blockIdx.x} * groups_of_block; first < groups;
       first += uint64_t{gridDim.x} * groups_of_block) {
    const uint64_t g = first + threadIdx.x / 32 * kGroupsOfWarp + lane % kGroupsOfWarp;
    float sum[8] = {};
    if (g < groups && whole) {
      const Divided image = divide(g * kGroup, channels);
      const uint64_t start = image.quotient * pixels * channels + image.rest;
      for (uint32_t p = member; p < pixels; p += kMembers) {
        float here[8];
        load_stored(x, (start + uint64_t{p} * channels) / kGroup, here);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] += here[i];
      }
    } else if (g < groups) {
      const uint32_t count = count_in(out.stored, g);
      for (uint32_t i = 0; i < count; ++i) {
        const Divided image = divide(g * kGroup + i, channels);
        const uint64_t start = image.quotient * pixels * channels + image.rest;
        float one = 0;
        for (uint32_t p = member; p < pixels; p += kMembers)
          one += load_one(x, start + uint64_t{p} * channels);
        set_at(sum, i, one);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      for (uint32_t mask = kGroupsOfWarp; mask < 32; mask *= 2)
        sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], static_cast<int>(mask));
      sum[i] = settle_nan(sum[i] / static_cast<float>(pixels));
    }
    if (member == 0 && g < groups) store(out, *state, g, sum, seen);
  }
  report(seen, out.stats);
}

// ---- the average of a whole image, fast path for codes (fused_groups.h) ----

struct ImageArgs {
  Leaf in;
  WriteView out;
  Rounder rounder;
  uint32_t pixels;
  uint32_t width;   // groups of a pixel
  uint32_t shares;  // threads that share an image's pixels; a power of two up to 32
  uint64_t items;   // groups of the average
};

constexpr uint32_t kImageThreads = 64;  // small blocks: there are few groups
constexpr uint32_t kPixelsAtOnce = 4;   // loads in flight per thread

// The lanes of a warp are neighbouring groups, once for each share.
__global__ void __launch_bounds__(kImageThreads) average_images(const __grid_constant__ ImageArgs a) {
  RangeCount seen;
  const uint32_t lane = threadIdx.x % 32, beside = 32 / a.shares, share = lane / beside;
  const uint32_t warps = blockDim.x / 32;
  // All lanes loop equally often, because they exchange sums.
  for (uint64_t first = (uint64_t{blockIdx.x} * warps + threadIdx.x / 32) * beside; first < a.items;
       first += uint64_t{gridDim.x} * warps * beside) {
    const uint64_t g = first + lane % beside;
    const bool there = g < a.items;
    float sum[8] = {};
    if (there) {
      const Divided image = divide(g, a.width);
      const uint64_t start = image.quotient * a.pixels * a.width + image.rest;
#pragma unroll 1
      for (uint32_t p = share; p < a.pixels; p += a.shares * kPixelsAtOnce) {
        Raw<32> raw[kPixelsAtOnce] = {};
#pragma unroll
        for (uint32_t u = 0; u < kPixelsAtOnce; ++u) {
          const uint32_t at = p + u * a.shares;
          if (at < a.pixels) load_raw<32>(a.in, start + uint64_t{at} * a.width, raw[u]);
        }
#pragma unroll
        for (uint32_t u = 0; u < kPixelsAtOnce; ++u) {
          if (p + u * a.shares >= a.pixels) continue;
          float here[8];
          decode_group<32>(a.in, raw[u], here);
#pragma unroll
          for (int i = 0; i < 8; ++i) sum[i] += here[i];
        }
      }
    }
    for (uint32_t mask = beside; mask < 32; mask *= 2) {
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += __shfl_xor_sync(0xFFFFFFFFu, sum[i], static_cast<int>(mask));
    }
    if (share != 0 || !there) continue;
    const auto size = static_cast<float>(a.pixels);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = settle_nan(sum[i] / size);
    store_quick<true>(a.out, a.rounder, g, sum, seen);
  }
  report(seen, a.out.stats);
}

// A thread reads a group of the average's gradient once, for every `shares`-th pixel. `sums`: the
// value is added to 0.
__global__ void __launch_bounds__(kThreads) spread_images(const __grid_constant__ ImageArgs a, bool sums) {
  RangeCount seen;
  const auto size = static_cast<float>(a.pixels);
  for (uint64_t item = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; item < a.items * a.shares;
       item += uint64_t{gridDim.x} * blockDim.x) {
    const Divided group = divide(item, a.width);
    const uint64_t image = group.quotient / a.shares;
    const auto share = static_cast<uint32_t>(group.quotient % a.shares);
    Raw<32> raw = {};
    load_raw<32>(a.in, image * a.width + group.rest, raw);
    float grad[8];
    decode_group<32>(a.in, raw, grad);
#pragma unroll
    for (int i = 0; i < 8; ++i) grad[i] = settle_nan((sums ? 0.0f + grad[i] : grad[i]) / size);
#pragma unroll 1
    for (uint32_t p = share; p < a.pixels; p += a.shares) {
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = grad[i];
      store_quick<true>(a.out, a.rounder, (image * a.pixels + p) * a.width + group.rest, x, seen);
    }
  }
  report(seen, a.out.stats);
}

// Whether the fast path applies; then `args` is filled in.
bool by_images(uint32_t pixels, uint32_t channels, uint64_t averages, const StoredView& in,
               const WriteView& out, ImageArgs& args) {
  const bool widths = out.stored.fp32 || out.stored.bits == 8 || out.stored.bits == 16;
  if (channels % kGroup != 0 || out.stored.kind != Stored::plain || out.sums || !widths) return false;
  args.in = make_leaf({.stored = in});
  args.out = out;
  args.rounder = make_rounder(out.stored.fp32, out.stored.codec, out.mode, out.number);
  if (!args.in.quick || !args.rounder.quick) return false;
  args.pixels = pixels;
  args.width = channels / kGroup;
  args.shares = 1;
  while (args.shares < 32 && args.shares * kPixelsAtOnce < pixels) args.shares *= 2;
  args.items = averages / kGroup;
  return true;
}

bool average_quickly(uint32_t pixels, uint32_t channels, const StoredView& x, const WriteView& out,
                     Stream stream) {
  ImageArgs args;
  if (!by_images(pixels, channels, out.stored.elements, x, out, args)) return false;
  launch(average_images,
         {blocks_for(args.items * args.shares, kImageThreads, kProcessors * 16), kImageThreads}, stream,
         args);
  return true;
}

bool spread_quickly(uint32_t pixels, uint32_t channels, const StoredView& dout, const WriteView& dx,
                    bool sums, Stream stream) {
  ImageArgs args;
  if (!by_images(pixels, channels, dout.elements, dout, dx, args)) return false;
  launch(spread_images, {blocks_for(args.items * args.shares), kThreads}, stream, args, sums);
  return true;
}

// One window that is the whole image.
bool is_global(const ConvExtents32& d) {
  return d.out_h == 1 && d.out_w == 1 && d.kernel_h == d.h && d.kernel_w == d.w && d.padding_h == 0 &&
         d.padding_w == 0;
}

template <typename Make>
void launch_groups(const Make& make, uint32_t channels, const WriteView& out, const StepState* state,
                   Stream stream) {
  launch(channels % kGroup == 0 ? make_groups<Make, true> : make_groups<Make, false>,
         {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, make, out, state);
}

}  // namespace

void max_pool(const ConvExtents32& shape, const StoredView& x, const WriteView& out, uint8_t* index,
              const StepState* state, Stream stream) {
  launch(shape.c % kGroup == 0 ? max_pool_groups<true> : max_pool_groups<false>,
         {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, shape, x, out, index, state);
}

void max_pool_grad(const ConvExtents32& shape, const StoredView& dout, const uint8_t* index,
                   const WriteView& dx, const StepState* state, Stream stream) {
  launch_groups(MaxGrad{shape, dout, index}, shape.c, dx, state, stream);
}

void avg_pool(const ConvExtents32& shape, const StoredView& x, const WriteView& out, const StepState* state,
              Stream stream) {
  if (is_global(shape) && average_quickly(shape.h * shape.w, shape.c, x, out, stream)) return;
  launch_groups(Average<false>{shape, x}, shape.c, out, state, stream);
}

void avg_pool_grad(const ConvExtents32& shape, const StoredView& dout, const WriteView& dx,
                   const StepState* state, Stream stream) {
  if (is_global(shape) && spread_quickly(shape.h * shape.w, shape.c, dout, dx, true, stream)) return;
  launch_groups(Average<true>{shape, dout}, shape.c, dx, state, stream);
}

void global_average(uint32_t pixels, uint32_t channels, const StoredView& x, const WriteView& out,
                    const StepState* state, Stream stream) {
  if (average_quickly(pixels, channels, x, out, stream)) return;
  // Small blocks: there are few groups, and each waits for many pixels.
  constexpr uint32_t kFew = 64;
  launch(global_average_groups, {blocks_for(groups_of(out.stored.elements) * kMembers, kFew), kFew}, stream,
         pixels, channels, x, out, state);
}

void global_average_grad(uint32_t pixels, uint32_t channels, const StoredView& dout, const WriteView& dx,
                         const StepState* state, Stream stream) {
  if (spread_quickly(pixels, channels, dout, dx, false, stream)) return;
  launch_groups(GlobalGrad{pixels, channels, dout}, channels, dx, state, stream);
}

}  // namespace ulp::cuda
