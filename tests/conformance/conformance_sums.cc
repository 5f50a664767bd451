// Operators that are sums of products and nothing else.
#include <iterator>
#include <set>

#include "tests/conformance/conformance_bounds.h"
#include "ulp/graph/ops/arithmetic.h"

namespace ulp::conformance {
namespace {

// Convolutions: every (pixel, tap, output) that meet, once.

template <typename Meet>
void for_taps(const View& v, const Shape& x, const Shape& w, const Shape& y, const Meet& meet) {
  const int64_t group_out = y.c() / v.integer("groups"), stride_h = v.integer("stride_h"),
                stride_w = v.integer("stride_w"), padding_h = v.integer("padding_h"),
                padding_w = v.integer("padding_w");
  const int64_t kernel_h = w[1], kernel_w = w[2], depth = w[3], channels = y.c();
  for (int64_t i = 0; i < static_cast<int64_t>(y.elements()); ++i) {
    const int64_t o = i % channels, column = i / channels % y.w(), row = i / channels / y.w() % y.h();
    const int64_t image = i / channels / y.w() / y.h(), first = o / group_out * depth;
    for (int64_t ky = 0; ky < kernel_h; ++ky) {
      for (int64_t kx = 0; kx < kernel_w; ++kx) {
        const int64_t px = column * stride_w - padding_w + kx, py = row * stride_h - padding_h + ky;
        if (px < 0 || px >= x.w() || py < 0 || py >= x.h()) continue;
        const int64_t pixel = ((image * x.h() + py) * x.w() + px) * x.c() + first;
        const int64_t tap = ((o * kernel_h + ky) * kernel_w + kx) * depth;
        for (int64_t k = 0; k < depth; ++k) meet(pixel + k, tap + k, i);
      }
    }
  }
}

Allowed conv2d(const View& v) {
  Sums sums(v.out());
  for_taps(v, v.in(0), v.in(1), v.out(), [&](int64_t x, int64_t w, int64_t y) {
    sums.add(y, static_cast<double>(v.real[0][at(x)]) * v.real[1][at(w)]);
  });
  for (size_t i = 0; v.real.size() > 2 && i < v.out().elements(); ++i) {
    sums.add(static_cast<int64_t>(i), v.real[2][i % v.real[2].size()]);
  }
  return {sums.allowed()};
}

Allowed conv2d_grad_input(const View& v) {
  Sums sums(v.out());
  for_taps(v, v.out(), v.in(1), v.in(0), [&](int64_t x, int64_t w, int64_t y) {
    sums.add(x, static_cast<double>(v.real[0][at(y)]) * v.real[1][at(w)]);
  });
  return {sums.allowed()};
}

Allowed conv2d_grad_weight(const View& v) {
  Sums sums(v.out());
  for_taps(v, v.in(0), v.out(), v.in(1), [&](int64_t x, int64_t w, int64_t y) {
    sums.add(w, static_cast<double>(v.real[0][at(x)]) * v.real[1][at(y)]);
  });
  return {sums.allowed()};
}

Allowed channel_sum(const View& v) {
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[0].size(); ++i)
    sums.add(static_cast<int64_t>(i) % v.in(0).back(), v.real[0][i]);
  return {sums.allowed()};
}

// Matrix products: sums (m, n) get |a (m, k)| |b (k, n)|, elements given by their strides.
struct Strides {
  int64_t row, column;
};
void multiply(Sums& sums, int64_t first, int64_t m, int64_t n, int64_t k, const float* a, Strides sa,
              const float* b, Strides sb) {
  for (int64_t i = 0; i < m * n * k; ++i) {
    const int64_t l = i % k, column = i / k % n, row = i / k / n;
    sums.add(first + row * n + column,
             static_cast<double>(a[row * sa.row + l * sa.column]) * b[l * sb.row + column * sb.column]);
  }
}

Allowed linear(const View& v) {
  const int64_t in = v.in(0).back(), out = v.out().back();
  Sums sums(v.out());
  multiply(sums, 0, static_cast<int64_t>(v.in(0).rows()), out, in, v.real[0].data(), {in, 1},
           v.real[1].data(), {1, in});
  for (size_t i = 0; v.real.size() > 2 && i < v.out().elements(); ++i) {
    sums.add(static_cast<int64_t>(i), v.real[2][i % v.real[2].size()]);
  }
  return {sums.allowed()};
}

Allowed linear_grad_input(const View& v) {
  const int64_t out = v.in(0).back(), in = v.in(1)[1];
  Sums sums(v.out());
  multiply(sums, 0, static_cast<int64_t>(v.in(0).rows()), in, out, v.real[0].data(), {out, 1},
           v.real[1].data(), {in, 1});
  return {sums.allowed()};
}

Allowed linear_grad_weight(const View& v) {
  const int64_t in = v.in(0).back(), out = v.in(1).back();
  Sums sums(v.out());
  multiply(sums, 0, out, in, static_cast<int64_t>(v.in(0).rows()), v.real[1].data(), {1, out},
           v.real[0].data(), {in, 1});
  return {sums.allowed()};
}

Allowed matmul(const View& v) {
  const int rank = v.out().rank();
  const bool ta = v.integer("transpose_a") != 0, tb = v.integer("transpose_b") != 0;
  const int64_t m = v.out()[rank - 2], n = v.out()[rank - 1], k = v.in(0)[rank - (ta ? 2 : 1)];
  Sums sums(v.out());
  for (int64_t i = 0; i < static_cast<int64_t>(v.out().elements()) / (m * n); ++i) {
    multiply(sums, i * m * n, m, n, k, v.real[0].data() + i * m * k, ta ? Strides{1, m} : Strides{k, 1},
             v.real[1].data() + i * k * n, tb ? Strides{1, k} : Strides{n, 1});
  }
  return {sums.allowed()};
}

// Both vectors of a pair, by example: use(example's first vector, i, j, place of the pair).
template <typename Meet>
void for_pairs(const Shape& x, const Meet& meet) {
  const int64_t n = x[1], pairs = n * (n - 1) / 2;
  for (int64_t b = 0; b < x[0]; ++b) {
    for (int64_t p = 0, i = 1; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j, ++p) meet((b * n + i) * x[2], (b * n + j) * x[2], b * pairs + p);
    }
  }
}

Allowed dot_interaction(const View& v) {
  Sums sums(v.out());
  const float* x = v.real[0].data();
  for_pairs(v.in(0), [&](int64_t left, int64_t right, int64_t pair) {
    for (int64_t k = 0; k < v.in(0).back(); ++k)
      sums.add(pair, static_cast<double>(x[left + k]) * x[right + k]);
  });
  return {sums.allowed()};
}

Allowed dot_interaction_grad(const View& v) {
  Sums sums(v.out());
  const float *dout = v.real[0].data(), *x = v.real[1].data();
  for_pairs(v.in(1), [&](int64_t left, int64_t right, int64_t pair) {
    for (int64_t k = 0; k < v.in(1).back(); ++k) {
      sums.add(left + k, static_cast<double>(dout[pair]) * x[right + k]);
      sums.add(right + k, static_cast<double>(dout[pair]) * x[left + k]);
    }
  });
  return {sums.allowed()};
}

Allowed broadcast_sum(const View& v) {
  Sums sums(v.out());
  const Repetition r = repetition(v.out(), v.in(0));
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    int64_t to = 0;
    for (size_t axis = r.extent.size(), left = i; axis-- > 0;) {
      const auto extent = static_cast<size_t>(r.extent[axis]);
      to += static_cast<int64_t>(left % extent) * r.stride[axis];
      left /= extent;
    }
    sums.add(to, v.real[0][i]);
  }
  return {sums.allowed()};
}

Allowed embedding_grad(const View& v) {
  const int64_t width = v.out().back();
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    sums.add(v.integers[1][place / width] * width + place % width, v.real[0][i]);
  }
  return {sums.allowed()};
}

// The numbers of the rows are exact.
Allowed embedding_grad_rows(const View& v) {
  const int64_t width = v.out().back();
  const std::set<int32_t> named(v.integers[1], v.integers[1] + v.in(1).elements());
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const auto row = std::distance(named.begin(), named.find(v.integers[1][place / width]));
    sums.add(row * width + place % width, v.real[0][i]);
  }
  return {sums.allowed(), {}};
}

// Averages of windows: each (pixel, window) that meet, once; divided by the size of the window.

template <typename Meet>
void for_windows(const View& v, const Shape& x, const Shape& y, const Meet& meet) {
  const int64_t kw = v.integer("kernel_w"), places = v.integer("kernel_h") * kw;
  const int64_t stride_h = v.integer("stride_h"), stride_w = v.integer("stride_w"),
                padding_h = v.integer("padding_h"), padding_w = v.integer("padding_w");
  for (int64_t i = 0; i < static_cast<int64_t>(y.elements()) * places; ++i) {
    const int64_t k = i % places, out = i / places;
    const int64_t c = out % y.c(), column = out / y.c() % y.w(), row = out / y.c() / y.w() % y.h();
    const int64_t px = column * stride_w - padding_w + k % kw, py = row * stride_h - padding_h + k / kw;
    if (px < 0 || px >= x.w() || py < 0 || py >= x.h()) continue;
    meet(((out / y.c() / y.w() / y.h() * x.h() + py) * x.w() + px) * x.c() + c, out);
  }
}
double window_share(const View& v) {
  return 1.0 / static_cast<double>(v.integer("kernel_h") * v.integer("kernel_w"));
}

Allowed avg_pool(const View& v) {
  Sums sums(v.out());
  for_windows(v, v.in(0), v.out(), [&](int64_t x, int64_t y) { sums.add(y, v.real[0][at(x)]); });
  return {sums.allowed(window_share(v))};
}

Allowed avg_pool_grad(const View& v) {
  Sums sums(v.out());
  for_windows(v, v.out(), v.in(0), [&](int64_t x, int64_t y) { sums.add(x, v.real[0][at(y)]); });
  return {sums.allowed(window_share(v))};
}

// The element (example, channel) that pixel i belongs to.
int64_t image_part(const Shape& image, int64_t i) {
  return i / (image.h() * image.w() * image.c()) * image.c() + i % image.c();
}

Allowed global_average(const View& v) {
  Sums sums(v.out());
  for (size_t i = 0; i < v.real[0].size(); ++i) {
    sums.add(image_part(v.in(0), static_cast<int64_t>(i)), v.real[0][i]);
  }
  return {sums.allowed(1.0 / static_cast<double>(v.in(0).h() * v.in(0).w()))};
}

Allowed global_average_grad(const View& v) {
  Sums sums(v.out());
  for (int64_t i = 0; i < static_cast<int64_t>(v.out().elements()); ++i) {
    sums.add(i, v.real[0][at(image_part(v.out(), i))]);
  }
  return {sums.allowed(1.0 / static_cast<double>(v.out().h() * v.out().w()))};
}

}  // namespace

std::span<const Rule> sum_rules() {
  static constexpr Rule kRules[] = {
      {"conv2d", conv2d},
      {"conv2d_grad_input", conv2d_grad_input},
      {"conv2d_grad_weight", conv2d_grad_weight},
      {"channel_sum", channel_sum},
      {"linear", linear},
      {"linear_grad_input", linear_grad_input},
      {"linear_grad_weight", linear_grad_weight},
      {"matmul", matmul},
      {"dot_interaction", dot_interaction},
      {"dot_interaction_grad", dot_interaction_grad},
      {"broadcast_sum", broadcast_sum},
      {"embedding_grad", embedding_grad},
      {"embedding_grad_rows", embedding_grad_rows},
      {"avg_pool", avg_pool},
      {"avg_pool_grad", avg_pool_grad},
      {"global_average", global_average},
      {"global_average_grad", global_average_grad},
  };
  return kRules;
}

}  // namespace ulp::conformance
