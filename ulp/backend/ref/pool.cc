// Pooling.
#include <algorithm>

#include "ulp/backend/conv_node.h"
#include "ulp/backend/elementwise.h"
#include "ulp/backend/ref/reference_task.h"

namespace ulp::ref {
namespace {

// Calls visit(output element, image element, place in the window) for every place that lies in the
// image, window by window.
template <typename Visit>
void for_windows(const ConvExtents& d, Visit visit) {
  for (int64_t b = 0; b < d.n; ++b) {
    for (int64_t oy = 0; oy < d.out_h; ++oy) {
      for (int64_t ox = 0; ox < d.out_w; ++ox) {
        for (int64_t channel = 0; channel < d.c; ++channel) {
          for (int64_t k = 0; k < d.taps(); ++k) {
            const int64_t y = d.row(oy, k / d.kernel_w), x = d.column(ox, k % d.kernel_w);
            if (d.inside(y, x)) visit(d.out_at(b, oy, ox, channel), d.x_at(b, y, x, channel), k);
          }
        }
      }
    }
  }
}

void max_pool(const Call& call) {
  const ConvExtents d = pool_extents(call.graph, call.node);
  const float* x = call.in(0);
  float* out = call.out(0);
  uint8_t* index = call.out_bytes(1);
  int64_t window = -1;
  for_windows(d, [&](int64_t o, int64_t i, int64_t k) {
    const bool larger = x[i] > out[o] || (x[i] != x[i] && out[o] == out[o]);
    if (o == window && !larger) return;
    window = o;
    out[o] = x[i];
    index[o] = static_cast<uint8_t>(k);
  });
}

// In fp32, in the order of the windows, as the operator says.
void max_pool_grad(const Call& call) {
  const ConvExtents d = pool_extents(call.graph, call.node);
  const float* dout = call.in(0);
  const uint8_t* index = call.bytes(1);
  float* dx = call.out();
  std::fill_n(dx, call.elements(), 0.0f);
  for_windows(d, [&](int64_t o, int64_t i, int64_t k) {
    if (index[o] == k) dx[i] = elementwise::Add::forward(dx[i], dout[o]);
  });
}

void avg_pool(const Call& call) {
  const ConvExtents d = pool_extents(call.graph, call.node);
  const float* x = call.in(0);
  float* out = call.out();
  int64_t window = -1;
  double sum = 0;
  for_windows(d, [&](int64_t o, int64_t i, int64_t) {
    sum = (o == window ? sum : 0) + x[i];
    window = o;
    out[o] = rounded(sum / static_cast<double>(d.taps()));
  });
}

void avg_pool_grad(const Call& call) {
  const ConvExtents d = pool_extents(call.graph, call.node);
  const float* dout = call.in(0);
  const double size = static_cast<double>(d.taps());
  for (int64_t b = 0; b < d.n; ++b) {
    for (int64_t iy = 0; iy < d.h; ++iy) {
      for (int64_t ix = 0; ix < d.w; ++ix) {
        for (int64_t channel = 0; channel < d.c; ++channel) {
          double sum = 0;
          for (int64_t k = 0; k < d.taps(); ++k) {
            const int64_t y = iy + d.padding_h - k / d.kernel_w, x = ix + d.padding_w - k % d.kernel_w;
            if (y < 0 || x < 0 || y % d.stride_h != 0 || x % d.stride_w != 0) continue;
            const int64_t oy = y / d.stride_h, ox = x / d.stride_w;
            if (oy < d.out_h && ox < d.out_w) sum += dout[d.out_at(b, oy, ox, channel)];
          }
          call.out()[d.x_at(b, iy, ix, channel)] = rounded(sum / size);
        }
      }
    }
  }
}

void global_average(const Call& call) {
  const Shape& x = call.in_shape(0);
  const int64_t pixels = x.h() * x.w();
  for (int64_t b = 0; b < x.n(); ++b) {
    for (int64_t channel = 0; channel < x.c(); ++channel) {
      double sum = 0;
      for (int64_t p = 0; p < pixels; ++p) sum += call.in(0)[(b * pixels + p) * x.c() + channel];
      call.out()[b * x.c() + channel] = rounded(sum / static_cast<double>(pixels));
    }
  }
}

void global_average_grad(const Call& call) {
  const Shape& x = call.out_shape();
  const int64_t pixels = x.h() * x.w();
  for (int64_t b = 0; b < x.n(); ++b) {
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t channel = 0; channel < x.c(); ++channel) {
        call.out()[(b * pixels + p) * x.c() + channel] =
            rounded(call.in(0)[b * x.c() + channel] / static_cast<double>(pixels));
      }
    }
  }
}

}  // namespace

std::span<const KernelDef> pool_kernels() {
  static constexpr KernelDef kKernels[] = {
      reference_kernel<max_pool>("max_pool"),
      reference_kernel<max_pool_grad>("max_pool_grad"),
      reference_kernel<avg_pool>("avg_pool"),
      reference_kernel<avg_pool_grad>("avg_pool_grad"),
      reference_kernel<global_average>("global_average"),
      reference_kernel<global_average_grad>("global_average_grad"),
  };
  return kKernels;
}

}  // namespace ulp::ref
