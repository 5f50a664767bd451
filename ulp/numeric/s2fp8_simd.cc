// S2FP8's logarithms and powers in vectors: the functions of power.h and s2fp8.h, operation by
// operation. A unit without fma would round twice where the definition rounds once; there the
// reference serves.
#include <cstring>

#include "ulp/numeric/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/numeric/s2fp8_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::kernels::HWY_NAMESPACE {

#if HWY_NATIVE_FMA

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::ScalableTag<int32_t>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

template <float (*coefficient)(int), int degree>
HWY_INLINE VF polynomial(VF r) {
  const DF df;
  VF p = hn::Set(df, coefficient(degree));
  for (int k = degree - 1; k >= 0; --k) p = hn::MulAdd(p, r, hn::Set(df, coefficient(k)));
  return p;
}

HWY_INLINE VI log2_fixed(VI pattern) {
  const DF df;
  const DI di;
  const auto subnormal = hn::Lt(pattern, hn::Set(di, 0x00800000));
  const VI scaled = hn::BitCast(di, hn::Mul(hn::BitCast(df, pattern), hn::Set(df, 0x1p23f)));
  pattern = hn::IfThenElse(subnormal, scaled, pattern);
  const VI scaled_down = hn::IfThenElseZero(subnormal, hn::Set(di, 23));
  const VI exponent = hn::ShiftRight<23>(hn::Sub(pattern, hn::Set(di, static_cast<int32_t>(kSqrtHalfBits))));
  const VF f = hn::BitCast(df, hn::Sub(pattern, hn::ShiftLeft<23>(exponent)));
  const VF r = hn::Sub(f, hn::Set(df, 1.0f));
  const VF fraction = hn::Mul(hn::Mul(polynomial<log2_coefficient, kLog2Degree>(r), r), hn::Set(df, 0x1p22f));
  const VF magic = hn::Set(df, kRoundMagic);
  const VI rounded = hn::Sub(hn::BitCast(di, hn::Add(fraction, magic)), hn::BitCast(di, magic));
  return hn::Add(hn::ShiftLeft<kLogFraction>(hn::Sub(exponent, scaled_down)), rounded);
}

// Magnitudes, infinity as the largest finite number; true where there is a logarithm: neither zero
// nor NaN.
struct Magnitudes {
  explicit Magnitudes(VI x) {
    const DI di;
    const VI magnitude = hn::And(x, hn::Set(di, 0x7FFFFFFF)), infinity = hn::Set(di, 0x7F800000);
    raw = magnitude;
    infinite = hn::Eq(magnitude, infinity);
    value = hn::IfThenElse(infinite, hn::Set(di, 0x7F7FFFFF), magnitude);
    nan = hn::Gt(magnitude, infinity);
    usable = hn::And(hn::Gt(magnitude, hn::Zero(di)), hn::Not(nan));
  }
  VI raw, value;
  hn::Mask<DI> infinite, nan, usable;
};

LogSums log_sums(const float* in, size_t n) {
  const DF df;
  const DI di;
  const hn::RepartitionToWide<DI> dw;
  const hn::Half<DI> dh;
  const size_t lanes = hn::Lanes(di);
  const VI one_bits = hn::Set(di, 0x3F800000), lowest = hn::Set(di, INT32_MIN);
  auto sum = hn::Zero(dw);
  VI max = lowest;
  uint64_t count = 0;
  auto step = [&](const float* from) HWY_ATTR {
    const Magnitudes m(hn::BitCast(di, hn::LoadU(df, from)));
    // What does not count is taken as 1, whose logarithm is 0.
    const VI log = log2_fixed(hn::IfThenElse(m.usable, m.value, one_bits));
    sum = hn::Add(
        sum, hn::Add(hn::PromoteTo(dw, hn::LowerHalf(dh, log)), hn::PromoteTo(dw, hn::UpperHalf(dh, log))));
    max = hn::Max(max, hn::IfThenElse(m.usable, log, lowest));
    count += hn::CountTrue(di, m.usable);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(in + i);
  if (i < n) {
    HWY_ALIGN float rest[hn::MaxLanes(df)] = {};
    std::memcpy(rest, in + i, (n - i) * sizeof(float));
    step(rest);
  }
  HWY_ALIGN int64_t sums[hn::MaxLanes(dw)];
  hn::Store(sum, dw, sums);
  LogSums total{0, count, hn::GetLane(hn::MaxOfLanes(di, max))};
  for (size_t k = 0; k < hn::Lanes(dw); ++k) total.sum += sums[k];
  return total;
}

SqueezeReport squeeze(const S2fp8Map& map, const float* in, size_t n, float* out) {
  const DF df;
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const VI mu = hn::Set(di, map.mu);
  const VF scale = hn::Set(df, map.scale), lowest = hn::Set(df, kS2fp8Lowest),
           magic = hn::Set(df, kRoundMagic);
  const VF one = hn::Set(df, 1.0f);
  const VI sign_bit = hn::Set(di, INT32_MIN);
  VI amax = hn::Zero(di);
  uint64_t infinite = 0;
  auto step = [&](const float* from, float* to) HWY_ATTR {
    const VI x = hn::BitCast(di, hn::LoadU(df, from));
    const Magnitudes m(x);
    amax = hn::Max(amax, hn::IfThenZeroElse(m.nan, m.raw));
    infinite += hn::CountTrue(di, m.infinite);
    VF t = hn::Mul(hn::ConvertTo(df, hn::Sub(log2_fixed(m.value), mu)), scale);
    t = hn::IfThenElse(hn::Gt(t, lowest), t, lowest);
    const VF whole = hn::Sub(hn::Add(t, magic), magic);
    const VF r = hn::Sub(t, whole);
    const VF power = hn::MulAdd(polynomial<exp2_coefficient, kExp2Degree>(r), r, one);
    const VI y = hn::Add(hn::BitCast(di, power), hn::ShiftLeft<23>(hn::ConvertTo(di, whole)));
    hn::StoreU(hn::BitCast(df, hn::IfThenElse(m.usable, hn::Or(y, hn::And(x, sign_bit)), x)), df, to);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(in + i, out + i);
  if (i < n) {
    HWY_ALIGN float rest[hn::MaxLanes(df)] = {};
    std::memcpy(rest, in + i, (n - i) * sizeof(float));
    step(rest, rest);
    std::memcpy(out + i, rest, (n - i) * sizeof(float));
  }
  return {infinite, bits_float(static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, amax))))};
}

#else

LogSums log_sums(const float* in, size_t n) { return reference_log_sums(in, n); }

SqueezeReport squeeze(const S2fp8Map& map, const float* in, size_t n, float* out) {
  return reference_squeeze(map, in, n, out);
}

#endif

}  // namespace ulp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::kernels {

HWY_EXPORT(log_sums);
HWY_EXPORT(squeeze);

void fill_s2fp8_kernels(Table& table) {
  table.log_sums = HWY_DYNAMIC_DISPATCH(log_sums);
  table.squeeze = HWY_DYNAMIC_DISPATCH(squeeze);
}

}  // namespace ulp::kernels
#endif
