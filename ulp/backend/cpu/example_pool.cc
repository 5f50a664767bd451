// Pooling, image by image, vectorised along the channels.
#include <algorithm>
#include <cstring>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/cpu/example.h"
#include "ulp/numeric/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/example_pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::example::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

struct Pool : ConvExtents {
  explicit Pool(const Call& call) : ConvExtents(pool_extents(call.graph, call.node)) {}

  int64_t image() const { return h * w * c; }
  int64_t result() const { return out_h * out_w * c; }
};

// The part of a window that lies in the image.
struct Window {
  int64_t out;             // its first element in the result
  int64_t y, x;            // of its first place, which may lie outside
  int64_t y0, y1, x0, x1;  // places inside, from 0 to the kernel
};

template <typename Visit>
HWY_INLINE void for_windows(const Pool& d, const Visit& visit) {
  for (int64_t oy = 0; oy < d.out_h; ++oy) {
    const int64_t y = oy * d.stride_h - d.padding_h;
    for (int64_t ox = 0; ox < d.out_w; ++ox) {
      const int64_t x = ox * d.stride_w - d.padding_w;
      visit(Window{(oy * d.out_w + ox) * d.c, y, x, std::max<int64_t>(0, -y), std::min(d.kernel_h, d.h - y),
                   std::max<int64_t>(0, -x), std::min(d.kernel_w, d.w - x)});
    }
  }
}

// Calls body(tag, c) for vectors that cover the channels, each channel once: full ones, then
// smaller ones.
template <typename Body>
HWY_INLINE void for_channels(int64_t channels, const Body& body) {
  const hn::ScalableTag<float> full;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  int64_t c = 0;
  const auto lanes = static_cast<int64_t>(hn::Lanes(full)), few = static_cast<int64_t>(hn::Lanes(four));
  for (; c + lanes <= channels; c += lanes) body(full, c);
  for (; c + few <= channels; c += few) body(four, c);
  for (; c < channels; ++c) body(one, c);
}

HWY_INLINE int64_t pixel(const Pool& d, const Window& v, int64_t ky, int64_t kx) {
  return ((v.y + ky) * d.w + v.x + kx) * d.c;
}

void max_pool(const Call& call) {
  const Pool d(call);
  for (size_t n = 0; n < call.count; ++n) {
    const float* x = call.in(0) + static_cast<int64_t>(n) * d.image();
    float* out = call.out(0) + static_cast<int64_t>(n) * d.result();
    uint8_t* index = call.out_bytes(1) + static_cast<int64_t>(n) * d.result();
    for_windows(d, [&](const Window& v) {
      for_channels(d.c, [&](auto df, int64_t c) {
        const hn::RebindToSigned<decltype(df)> di;
        const hn::Rebind<uint8_t, decltype(df)> du8;
        auto best = hn::LoadU(df, x + pixel(d, v, v.y0, v.x0) + c);
        auto place = hn::Set(di, static_cast<int32_t>(v.y0 * d.kernel_w + v.x0));
        for (int64_t ky = v.y0; ky < v.y1; ++ky) {
          for (int64_t kx = v.x0; kx < v.x1; ++kx) {
            const auto here = hn::LoadU(df, x + pixel(d, v, ky, kx) + c);
            const auto better = hn::Or(hn::Gt(here, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(here)));
            best = hn::IfThenElse(better, here, best);
            place = hn::IfThenElse(hn::RebindMask(di, better),
                                   hn::Set(di, static_cast<int32_t>(ky * d.kernel_w + kx)), place);
          }
        }
        hn::StoreU(best, df, out + v.out + c);
        hn::StoreU(hn::DemoteTo(du8, place), du8, index + v.out + c);
      });
    });
  }
}

// a + b with NaN settled to one pattern.
template <class D, class V>
HWY_INLINE V add(D d, V a, V b) {
  const V sum = hn::Add(a, b);
  return hn::IfThenElse(hn::IsNaN(sum), hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), kNanBits)), sum);
}

void max_pool_grad(const Call& call) {
  const Pool d(call);
  for (size_t n = 0; n < call.count; ++n) {
    const float* dout = call.in(0) + static_cast<int64_t>(n) * d.result();
    const uint8_t* index = call.bytes(1) + static_cast<int64_t>(n) * d.result();
    float* dx = call.out() + static_cast<int64_t>(n) * d.image();
    std::fill_n(dx, d.image(), 0.0f);
    for_windows(d, [&](const Window& v) {
      for_channels(d.c, [&](auto df, int64_t c) {
        const hn::RebindToSigned<decltype(df)> di;
        const hn::Rebind<uint8_t, decltype(df)> du8;
        const auto grad = hn::LoadU(df, dout + v.out + c);
        const auto place = hn::PromoteTo(di, hn::LoadU(du8, index + v.out + c));
        for (int64_t ky = v.y0; ky < v.y1; ++ky) {
          for (int64_t kx = v.x0; kx < v.x1; ++kx) {
            float* at = dx + pixel(d, v, ky, kx) + c;
            const auto before = hn::LoadU(df, at);
            const auto chosen =
                hn::RebindMask(df, hn::Eq(place, hn::Set(di, static_cast<int32_t>(ky * d.kernel_w + kx))));
            hn::StoreU(hn::IfThenElse(chosen, add(df, before, grad), before), df, at);
          }
        }
      });
    });
  }
}

void avg_pool(const Call& call) {
  const Pool d(call);
  const auto size = static_cast<float>(d.taps());
  for (size_t n = 0; n < call.count; ++n) {
    const float* x = call.in(0) + static_cast<int64_t>(n) * d.image();
    float* out = call.out() + static_cast<int64_t>(n) * d.result();
    for_windows(d, [&](const Window& v) {
      for_channels(d.c, [&](auto df, int64_t c) {
        auto sum = hn::Zero(df);
        for (int64_t ky = v.y0; ky < v.y1; ++ky) {
          for (int64_t kx = v.x0; kx < v.x1; ++kx)
            sum = hn::Add(sum, hn::LoadU(df, x + pixel(d, v, ky, kx) + c));
        }
        hn::StoreU(hn::Div(sum, hn::Set(df, size)), df, out + v.out + c);
      });
    });
  }
}

void avg_pool_grad(const Call& call) {
  const Pool d(call);
  const auto size = static_cast<float>(d.taps());
  for (size_t n = 0; n < call.count; ++n) {
    const float* dout = call.in(0) + static_cast<int64_t>(n) * d.result();
    float* dx = call.out() + static_cast<int64_t>(n) * d.image();
    std::fill_n(dx, d.image(), 0.0f);
    for_windows(d, [&](const Window& v) {
      for_channels(d.c, [&](auto df, int64_t c) {
        const auto grad = hn::LoadU(df, dout + v.out + c);
        for (int64_t ky = v.y0; ky < v.y1; ++ky) {
          for (int64_t kx = v.x0; kx < v.x1; ++kx) {
            float* at = dx + pixel(d, v, ky, kx) + c;
            hn::StoreU(hn::Add(hn::LoadU(df, at), grad), df, at);
          }
        }
      });
    });
    for (int64_t i = 0; i < d.image(); ++i) dx[i] /= size;
  }
}

void global_average(const Call& call) {
  const Shape& shape = call.in_shape(0);
  const int64_t pixels = shape.h() * shape.w(), channels = shape.c();
  for (size_t n = 0; n < call.count; ++n) {
    const float* x = call.in(0) + static_cast<int64_t>(n) * pixels * channels;
    float* HWY_RESTRICT out = call.out() + static_cast<int64_t>(n) * channels;
    std::fill_n(out, channels, 0.0f);
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < channels; ++c) out[c] += x[p * channels + c];
    }
    for (int64_t c = 0; c < channels; ++c) out[c] /= static_cast<float>(pixels);
  }
}

void global_average_grad(const Call& call) {
  const Shape& shape = call.out_shape();
  const int64_t pixels = shape.h() * shape.w(), channels = shape.c();
  for (size_t n = 0; n < call.count; ++n) {
    const float* HWY_RESTRICT dout = call.in(0) + static_cast<int64_t>(n) * channels;
    float* dx = call.out() + static_cast<int64_t>(n) * pixels * channels;
    for (int64_t c = 0; c < channels; ++c) dx[c] = dout[c] / static_cast<float>(pixels);
    for (int64_t p = 1; p < pixels; ++p) {
      std::memcpy(dx + p * channels, dx, static_cast<size_t>(channels) * sizeof(float));
    }
  }
}

}  // namespace ulp::example::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::example {
namespace {

HWY_EXPORT(max_pool);
HWY_EXPORT(max_pool_grad);
HWY_EXPORT(avg_pool);
HWY_EXPORT(avg_pool_grad);
HWY_EXPORT(global_average);
HWY_EXPORT(global_average_grad);

void run_max_pool(const Call& call) { HWY_DYNAMIC_DISPATCH(max_pool)(call); }
void run_max_pool_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(max_pool_grad)(call); }
void run_avg_pool(const Call& call) { HWY_DYNAMIC_DISPATCH(avg_pool)(call); }
void run_avg_pool_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(avg_pool_grad)(call); }
void run_global_average(const Call& call) { HWY_DYNAMIC_DISPATCH(global_average)(call); }
void run_global_average_grad(const Call& call) { HWY_DYNAMIC_DISPATCH(global_average_grad)(call); }

}  // namespace

std::span<const KernelDef> pool_kernels() {
  static constexpr KernelDef kernels[] = {
      kernel<run_max_pool, Item::image>("max_pool"),
      kernel<run_max_pool_grad, Item::image>("max_pool_grad"),
      kernel<run_avg_pool, Item::image>("avg_pool"),
      kernel<run_avg_pool_grad, Item::image>("avg_pool_grad"),
      kernel<run_global_average, Item::image>("global_average"),
      kernel<run_global_average_grad, Item::image>("global_average_grad"),
  };
  return kernels;
}

}  // namespace ulp::example
#endif
