// Convolutions, each written as what one element of the output gathers, and the sum over channels.
#include "ulp/backend/ref/plain.h"
#include "ulp/backend/ref/sum.h"

namespace ulp::ref {
namespace {

// The extents of a convolution, named alike in forward and in both gradients.
struct Conv {
  int64_t n, h, w, c;  // of the images
  int64_t oh, ow, oc;  // of what comes out
  int64_t kh, kw, ic;  // of the kernel; input channels of a group
  int64_t stride_h, stride_w, padding_h, padding_w;
  int64_t group_out;  // output channels of a group

  Conv(const Call& call, const Shape& x, const Shape& weight, const Shape& out)
      : n(x.n()),
        h(x.h()),
        w(x.w()),
        c(x.c()),
        oh(out.h()),
        ow(out.w()),
        oc(out.c()),
        kh(weight[1]),
        kw(weight[2]),
        ic(weight[3]),
        stride_h(call.integer("stride_h")),
        stride_w(call.integer("stride_w")),
        padding_h(call.integer("padding_h")),
        padding_w(call.integer("padding_w")),
        group_out(oc / call.integer("groups")) {}

  int64_t x_at(int64_t b, int64_t y, int64_t x, int64_t channel) const {
    return ((b * h + y) * w + x) * c + channel;
  }
  int64_t weight_at(int64_t o, int64_t y, int64_t x, int64_t i) const {
    return ((o * kh + y) * kw + x) * ic + i;
  }
  int64_t out_at(int64_t b, int64_t y, int64_t x, int64_t o) const {
    return ((b * oh + y) * ow + x) * oc + o;
  }
  // The image's row and column that kernel row or column `k` reads for output row or column `o`; it may lie outside.
  int64_t row(int64_t o, int64_t k) const { return o * stride_h - padding_h + k; }
  int64_t column(int64_t o, int64_t k) const { return o * stride_w - padding_w + k; }
  bool inside(int64_t y, int64_t x) const { return y >= 0 && y < h && x >= 0 && x < w; }
  int64_t first_channel(int64_t o) const { return o / group_out * ic; }
};

template <typename Sum>
void conv2d(const Call& call) {
  const Conv d(call, call.in_shape(0), call.in_shape(1), call.out_shape());
  const float *x = call.in(0), *weight = call.in(1);
  const float* bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  float* out = call.out();
  for (int64_t b = 0; b < d.n; ++b) {
    for (int64_t oy = 0; oy < d.oh; ++oy) {
      for (int64_t ox = 0; ox < d.ow; ++ox) {
        for (int64_t o = 0; o < d.oc; ++o) {
          Sum sum(call);
          for (int64_t ky = 0; ky < d.kh; ++ky) {
            for (int64_t kx = 0; kx < d.kw; ++kx) {
              const int64_t iy = d.row(oy, ky), ix = d.column(ox, kx);
              if (!d.inside(iy, ix)) continue;
              const float* pixel = x + d.x_at(b, iy, ix, d.first_channel(o));
              const float* tap = weight + d.weight_at(o, ky, kx, 0);
              for (int64_t i = 0; i < d.ic; ++i) sum.add(pixel[i], tap[i]);
            }
          }
          if (bias != nullptr) sum.add(bias[o]);
          out[d.out_at(b, oy, ox, o)] = sum.result();
        }
      }
    }
  }
}

// A pixel hears from every output whose kernel lay over it.
template <typename Sum>
void conv2d_grad_input(const Call& call) {
  const Conv d(call, call.out_shape(), call.in_shape(1), call.in_shape(0));
  const float *dout = call.in(0), *weight = call.in(1);
  float* dx = call.out();
  for (int64_t b = 0; b < d.n; ++b) {
    for (int64_t iy = 0; iy < d.h; ++iy) {
      for (int64_t ix = 0; ix < d.w; ++ix) {
        for (int64_t channel = 0; channel < d.c; ++channel) {
          const int64_t i = channel % d.ic, first_out = channel / d.ic * d.group_out;
          Sum sum(call);
          for (int64_t ky = 0; ky < d.kh; ++ky) {
            for (int64_t kx = 0; kx < d.kw; ++kx) {
              const int64_t y = iy + d.padding_h - ky, xx = ix + d.padding_w - kx;
              if (y < 0 || xx < 0 || y % d.stride_h != 0 || xx % d.stride_w != 0) continue;
              const int64_t oy = y / d.stride_h, ox = xx / d.stride_w;
              if (oy >= d.oh || ox >= d.ow) continue;
              for (int64_t o = first_out; o < first_out + d.group_out; ++o) {
                sum.add(dout[d.out_at(b, oy, ox, o)], weight[d.weight_at(o, ky, kx, i)]);
              }
            }
          }
          dx[d.x_at(b, iy, ix, channel)] = sum.result();
        }
      }
    }
  }
}

template <typename Sum>
void conv2d_grad_weight(const Call& call) {
  const Conv d(call, call.in_shape(0), call.out_shape(), call.in_shape(1));
  const float *x = call.in(0), *dout = call.in(1);
  float* dweight = call.out();
  for (int64_t o = 0; o < d.oc; ++o) {
    for (int64_t ky = 0; ky < d.kh; ++ky) {
      for (int64_t kx = 0; kx < d.kw; ++kx) {
        for (int64_t i = 0; i < d.ic; ++i) {
          Sum sum(call);
          for (int64_t b = 0; b < d.n; ++b) {
            for (int64_t oy = 0; oy < d.oh; ++oy) {
              for (int64_t ox = 0; ox < d.ow; ++ox) {
                const int64_t iy = d.row(oy, ky), ix = d.column(ox, kx);
                if (!d.inside(iy, ix)) continue;
                sum.add(x[d.x_at(b, iy, ix, d.first_channel(o) + i)], dout[d.out_at(b, oy, ox, o)]);
              }
            }
          }
          dweight[d.weight_at(o, ky, kx, i)] = sum.result();
        }
      }
    }
  }
}

void channel_sum(const Call& call) {
  const auto rows = static_cast<int64_t>(call.in_shape(0).rows()), channels = call.in_shape(0).back();
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += call.in(0)[r * channels + c];
    call.out()[c] = rounded(sum);
  }
}

}  // namespace

std::span<const KernelDef> conv_kernels() {
  static constexpr KernelDef kKernels[] = {
      plain<by_accumulator<conv2d<WideSum>, conv2d<NarrowSum>>>("conv2d"),
      plain<by_accumulator<conv2d_grad_input<WideSum>, conv2d_grad_input<NarrowSum>>>("conv2d_grad_input"),
      plain<by_accumulator<conv2d_grad_weight<WideSum>, conv2d_grad_weight<NarrowSum>>>("conv2d_grad_weight"),
      plain<channel_sum>("channel_sum"),
  };
  return kKernels;
}

}  // namespace ulp::ref
