// Convolutions, each written as what one element of the output gathers, and the sum over channels.
#include "ulp/backend/conv_node.h"
#include "ulp/backend/ref/reference_task.h"
#include "ulp/backend/ref/sum.h"

namespace ulp::ref {
namespace {

using Conv = GroupedConv<int64_t>;

template <typename Sum>
void conv2d(const Call& call) {
  const Conv d(conv_extents(call.graph, call.node));
  const float *x = call.in(0), *weight = call.in(1);
  const float* bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  float* out = call.out();
  for (int64_t b = 0; b < d.n; ++b) {
    for (int64_t oy = 0; oy < d.out_h; ++oy) {
      for (int64_t ox = 0; ox < d.out_w; ++ox) {
        for (int64_t o = 0; o < d.out_c; ++o) {
          Sum sum(call);
          for (int64_t ky = 0; ky < d.kernel_h; ++ky) {
            for (int64_t kx = 0; kx < d.kernel_w; ++kx) {
              const int64_t iy = d.row(oy, ky), ix = d.column(ox, kx);
              if (!d.inside(iy, ix)) continue;
              const float* pixel = x + d.x_at(b, iy, ix, d.first_channel(o));
              const float* tap = weight + d.weight_at(o, ky, kx, 0);
              for (int64_t i = 0; i < d.group_c; ++i) sum.add(pixel[i], tap[i]);
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
  const Conv d(conv_extents(call.graph, call.node));
  const float *dout = call.in(0), *weight = call.in(1);
  float* dx = call.out();
  for (int64_t b = 0; b < d.n; ++b) {
    for (int64_t iy = 0; iy < d.h; ++iy) {
      for (int64_t ix = 0; ix < d.w; ++ix) {
        for (int64_t channel = 0; channel < d.c; ++channel) {
          const int64_t i = channel % d.group_c, first_out = channel / d.group_c * d.group_out;
          Sum sum(call);
          for (int64_t ky = 0; ky < d.kernel_h; ++ky) {
            for (int64_t kx = 0; kx < d.kernel_w; ++kx) {
              const int64_t y = iy + d.padding_h - ky, xx = ix + d.padding_w - kx;
              if (y < 0 || xx < 0 || y % d.stride_h != 0 || xx % d.stride_w != 0) continue;
              const int64_t oy = y / d.stride_h, ox = xx / d.stride_w;
              if (oy >= d.out_h || ox >= d.out_w) continue;
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
  const Conv d(conv_extents(call.graph, call.node));
  const float *x = call.in(0), *dout = call.in(1);
  float* dweight = call.out();
  for (int64_t o = 0; o < d.out_c; ++o) {
    for (int64_t ky = 0; ky < d.kernel_h; ++ky) {
      for (int64_t kx = 0; kx < d.kernel_w; ++kx) {
        for (int64_t i = 0; i < d.group_c; ++i) {
          Sum sum(call);
          for (int64_t b = 0; b < d.n; ++b) {
            for (int64_t oy = 0; oy < d.out_h; ++oy) {
              for (int64_t ox = 0; ox < d.out_w; ++ox) {
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
      reference_kernel<by_accumulator<conv2d<WideSum>, conv2d<NarrowSum>>>("conv2d"),
      reference_kernel<by_accumulator<conv2d_grad_input<WideSum>, conv2d_grad_input<NarrowSum>>>(
          "conv2d_grad_input"),
      reference_kernel<by_accumulator<conv2d_grad_weight<WideSum>, conv2d_grad_weight<NarrowSum>>>(
          "conv2d_grad_weight"),
      reference_kernel<channel_sum>("channel_sum"),
  };
  return kKernels;
}

}  // namespace ulp::ref
