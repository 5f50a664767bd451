#include "ulp/backend/cpu/pairs.h"

#include <algorithm>

#include "ulp/numeric/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/pairs.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::pairs::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors and elements of them that are turned at a time: their block stays in the first cache.
constexpr size_t kVectors = 32, kElements = 64;
using Tag = hn::CappedTag<float, kVectors / 2>;

// Four accumulators at a time hide how long an addition takes.
HWY_INLINE void add_products(const float* HWY_RESTRICT own, const float* HWY_RESTRICT block, size_t elements,
                             float* HWY_RESTRICT sums) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  size_t at = 0;
  for (; at + 4 * lanes <= kVectors; at += 4 * lanes) {
    auto sum0 = hn::Load(d, sums + at), sum1 = hn::Load(d, sums + at + lanes);
    auto sum2 = hn::Load(d, sums + at + 2 * lanes), sum3 = hn::Load(d, sums + at + 3 * lanes);
    for (size_t k = 0; k < elements; ++k) {
      const auto factor = hn::Set(d, own[k]);
      const float* row = block + k * kVectors + at;
      sum0 = hn::Add(sum0, hn::Mul(factor, hn::Load(d, row)));
      sum1 = hn::Add(sum1, hn::Mul(factor, hn::Load(d, row + lanes)));
      sum2 = hn::Add(sum2, hn::Mul(factor, hn::Load(d, row + 2 * lanes)));
      sum3 = hn::Add(sum3, hn::Mul(factor, hn::Load(d, row + 3 * lanes)));
    }
    hn::Store(sum0, d, sums + at);
    hn::Store(sum1, d, sums + at + lanes);
    hn::Store(sum2, d, sums + at + 2 * lanes);
    hn::Store(sum3, d, sums + at + 3 * lanes);
  }
  for (; at < kVectors; at += lanes) {
    auto sum = hn::Load(d, sums + at);
    for (size_t k = 0; k < elements; ++k)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, own[k]), hn::Load(d, block + k * kVectors + at)));
    hn::Store(sum, d, sums + at);
  }
}

// A vector meets a block of others at once. Each sum adds its terms in their order, so that neither
// the block nor the machine's vectors matter.
void multiply(const float* x, size_t n, size_t width, float* out) {
  HWY_ALIGN float block[kVectors * kElements];
  HWY_ALIGN float sums[kVectors];
  for (size_t first = 0; first + 1 < n; first += kVectors) {
    const size_t vectors = std::min(kVectors, n - first);
    for (size_t place = 0; place < width; place += kElements) {
      const size_t elements = std::min(kElements, width - place);
      const float* from = x + first * width + place;
      for (size_t k = 0; k < elements; ++k) {
        float* row = block + k * kVectors;
        for (size_t j = 0; j < vectors; ++j) row[j] = from[j * width + k];
        std::fill(row + vectors, row + kVectors, 0.0f);
      }
      for (size_t i = first + 1; i < n; ++i) {
        float* row = out + i * (i - 1) / 2 + first;
        const size_t count = std::min(kVectors, i - first);
        std::fill_n(sums, kVectors, 0.0f);
        if (place > 0) std::copy_n(row, count, sums);
        add_products(x + i * width + place, block, elements, sums);
        std::copy_n(sums, count, row);
      }
    }
  }
  for (size_t i = 0; i < n * (n - 1) / 2; ++i) out[i] = settle_nan(out[i]);
}

// The vectors before and those behind are summed apart.
void gradient(const float* HWY_RESTRICT dout, const float* HWY_RESTRICT x, size_t n, size_t width,
              float* HWY_RESTRICT dx) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; ++i) {
    const float* row = dout + i * (i - 1) / 2;  // of the products with those before; i = 0 has none
    float* sums = dx + i * width;
    size_t k = 0;
    for (; k + lanes <= width; k += lanes) {
      auto before = hn::Zero(d), behind = hn::Zero(d);
      for (size_t j = 0; j < i; ++j)
        before = hn::Add(before, hn::Mul(hn::Set(d, row[j]), hn::LoadU(d, x + j * width + k)));
      for (size_t j = i + 1; j < n; ++j) {
        const auto factor = hn::Set(d, dout[j * (j - 1) / 2 + i]);
        behind = hn::Add(behind, hn::Mul(factor, hn::LoadU(d, x + j * width + k)));
      }
      hn::StoreU(hn::Add(before, behind), d, sums + k);
    }
    // In the same order, so that it does not matter which columns fill vectors.
    const size_t rest = width - k;
    float before[kVectors / 2] = {}, behind[kVectors / 2] = {};
    for (size_t j = 0; j < i; ++j) {
      for (size_t c = 0; c < rest; ++c) before[c] += row[j] * x[j * width + k + c];
    }
    for (size_t j = i + 1; j < n; ++j) {
      const float factor = dout[j * (j - 1) / 2 + i];
      for (size_t c = 0; c < rest; ++c) behind[c] += factor * x[j * width + k + c];
    }
    for (size_t c = 0; c < rest; ++c) sums[k + c] = before[c] + behind[c];
  }
  for (size_t i = 0; i < n * width; ++i) dx[i] = settle_nan(dx[i]);
}

}  // namespace ulp::pairs::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::pairs {

HWY_EXPORT(multiply);
HWY_EXPORT(gradient);

void multiply(const float* x, size_t n, size_t width, float* out) {
  HWY_DYNAMIC_DISPATCH(multiply)(x, n, width, out);
}

void gradient(const float* dout, const float* x, size_t n, size_t width, float* dx) {
  HWY_DYNAMIC_DISPATCH(gradient)(dout, x, n, width, dx);
}

}  // namespace ulp::pairs
#endif
