// S2FP8's logarithms and powers in vectors: the functions of power.h and s2fp8.h, operation by
// operation. A unit without fma would round twice where the definition rounds once; there the
// reference serves. On AVX-512 codes and values are found in tables.
#include <cstring>

#include "ulp/numeric/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/numeric/s2fp8_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ulp::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_FMA

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

// Numbers of which every one is zero or an ordinary fp32 number, neither subnormal nor infinite nor
// NaN: what counts is a logarithm of few steps.
struct PlainSums {
  int64_t sum = 0;
  uint64_t count = 0;
  uint32_t most = 0;
  bool plain = true;  // what it asks of its numbers; else the sums are void
};

// A lane's sums of 2^22 times the fraction, at most 2^21 each, must stay below 2^31.
constexpr size_t kMostSteps = 512;

// log2_coefficient in units of a logarithm: that scaling by a power of two comes before the
// roundings or after them makes no difference.
constexpr float log2_unit_coefficient(int k) { return log2_coefficient(k) * 0x1p22f; }

// At most kMostSteps vectors.
HWY_INLINE PlainSums plain_sums(const float* in, size_t n) {
  const DF df;
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const VI magnitude_mask = hn::Set(di, 0x7FFFFFFF), below_normal = hn::Set(di, 0x007FFFFF),
           infinity = hn::Set(di, 0x7F800000), one_bits = hn::Set(di, 0x3F800000),
           base = hn::Set(di, static_cast<int32_t>(kSqrtHalfBits)), mantissa = hn::Set(di, 0x007FFFFF);
  const VF one = hn::Set(df, 1.0f), magic = hn::Set(df, kRoundMagic);
  VI exponents = hn::Zero(di), fractions = hn::Zero(di), most = hn::Zero(di), other = hn::Zero(di);
  uint64_t count = 0;
  const auto step = [&](const float* from) HWY_ATTR {
    const VI magnitude = hn::And(hn::BitCast(di, hn::LoadU(df, from)), magnitude_mask);
    const auto normal = hn::And(hn::Gt(magnitude, below_normal), hn::Gt(infinity, magnitude));
    other = hn::Or(other, hn::IfThenZeroElse(normal, magnitude));
    count += hn::CountTrue(di, normal);
    most = hn::Max(most, hn::IfThenElseZero(normal, magnitude));
    // What does not count is taken as 1, whose logarithm is 0.
    const VI above = hn::Sub(hn::IfThenElse(normal, magnitude, one_bits), base);
    exponents = hn::Add(exponents, hn::ShiftRight<23>(above));
    const VF r = hn::Sub(hn::BitCast(df, hn::Add(hn::And(above, mantissa), base)), one);
    const VF fraction = hn::Mul(polynomial<log2_unit_coefficient, kLog2Degree>(r), r);
    // The fraction stands in the low bits of the sum; what stands above them is taken off below.
    fractions = hn::Add(fractions, hn::BitCast(di, hn::Add(fraction, magic)));
  };
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    step(in + i);
    step(in + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) step(in + i);
  if (i < n) {
    HWY_ALIGN float rest[hn::MaxLanes(df)] = {};
    std::memcpy(rest, in + i, (n - i) * sizeof(float));
    step(rest);
  }
  const auto steps = static_cast<uint32_t>((n + lanes - 1) / lanes);
  fractions = hn::Sub(fractions, hn::Set(di, static_cast<int32_t>(steps * float_bits(kRoundMagic))));
  HWY_ALIGN int32_t whole[hn::MaxLanes(di)], part[hn::MaxLanes(di)];
  hn::Store(exponents, di, whole);
  hn::Store(fractions, di, part);
  PlainSums sums;
  for (size_t k = 0; k < lanes; ++k) sums.sum += (int64_t{whole[k]} << kLogFraction) + part[k];
  sums.count = count;
  sums.most = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
  sums.plain = hn::AllTrue(di, hn::Eq(other, hn::Zero(di)));
  return sums;
}

// The same of any numbers, in more steps.
HWY_INLINE S2fp8Survey survey_any(const float* in, size_t n) {
  const DF df;
  const DI di;
  const hn::RepartitionToWide<DI> dw;
  const hn::Half<DI> dh;
  const size_t lanes = hn::Lanes(di);
  const VI infinity = hn::Set(di, 0x7F800000), one_bits = hn::Set(di, 0x3F800000);
  auto sum = hn::Zero(dw);
  VI most = hn::Zero(di);
  S2fp8Survey all;
  const auto step = [&](const float* from) HWY_ATTR {
    const VI magnitude = hn::And(hn::BitCast(di, hn::LoadU(df, from)), hn::Set(di, 0x7FFFFFFF));
    const auto nan = hn::Gt(magnitude, infinity);
    const auto usable = hn::And(hn::Gt(magnitude, hn::Zero(di)), hn::Not(nan));
    const VI finite = hn::Min(magnitude, hn::Set(di, 0x7F7FFFFF));
    const VI log = log2_fixed(hn::IfThenElse(usable, finite, one_bits));
    sum = hn::Add(
        sum, hn::Add(hn::PromoteTo(dw, hn::LowerHalf(dh, log)), hn::PromoteTo(dw, hn::UpperHalf(dh, log))));
    most = hn::Max(most, hn::IfThenZeroElse(nan, magnitude));
    all.logs.count += hn::CountTrue(di, usable);
    all.infinite += hn::CountTrue(di, hn::Eq(magnitude, infinity));
    all.nan += hn::CountTrue(di, nan);
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
  for (size_t k = 0; k < hn::Lanes(dw); ++k) all.logs.sum += sums[k];
  all.most = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
  if (all.logs.count > 0) all.logs.max = ulp::log2_fixed(finite_magnitude(all.most));
  return all;
}

S2fp8Survey survey(const float* in, size_t n) {
  const size_t block = kMostSteps * hn::Lanes(DI());
  S2fp8Survey all;
  for (size_t i = 0; i < n; i += block) {
    const size_t length = n - i < block ? n - i : block;
    const PlainSums sums = plain_sums(in + i, length);
    if (!sums.plain) {
      all.merge(survey_any(in + i, length));
    } else if (sums.count > 0) {
      // Logarithms grow with magnitudes.
      all.merge({{sums.sum, sums.count, ulp::log2_fixed(sums.most)}, 0, 0, sums.most});
    }
  }
  return all;
}

void squeeze(const S2fp8Map& map, const float* in, size_t n, float* out) {
  const DF df;
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const VI mu = hn::Set(di, map.mu), infinity = hn::Set(di, 0x7F800000);
  const VF scale = hn::Set(df, map.scale), lowest = hn::Set(df, kS2fp8Lowest),
           highest = hn::Set(df, kS2fp8Highest), magic = hn::Set(df, kRoundMagic);
  const VF one = hn::Set(df, 1.0f);
  const VI sign_bit = hn::Set(di, INT32_MIN);
  auto step = [&](const float* from, float* to) HWY_ATTR {
    const VI x = hn::BitCast(di, hn::LoadU(df, from));
    const VI magnitude = hn::And(x, hn::Set(di, 0x7FFFFFFF));
    const auto usable = hn::And(hn::Gt(magnitude, hn::Zero(di)), hn::Not(hn::Gt(magnitude, infinity)));
    const VI finite = hn::Min(magnitude, hn::Set(di, 0x7F7FFFFF));
    VF t = hn::Mul(hn::ConvertTo(df, hn::Sub(log2_fixed(finite), mu)), scale);
    t = hn::IfThenElse(hn::Gt(t, lowest), t, lowest);
    t = hn::IfThenElse(hn::Lt(t, highest), t, highest);
    const VF whole = hn::Sub(hn::Add(t, magic), magic);
    const VF r = hn::Sub(t, whole);
    const VF power = hn::MulAdd(polynomial<exp2_coefficient, kExp2Degree>(r), r, one);
    const VI y = hn::Add(hn::BitCast(di, power), hn::ShiftLeft<23>(hn::ConvertTo(di, whole)));
    hn::StoreU(hn::BitCast(df, hn::IfThenElse(usable, hn::Or(y, hn::And(x, sign_bit)), x)), df, to);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(in + i, out + i);
  if (i < n) {
    HWY_ALIGN float rest[hn::MaxLanes(df)] = {};
    std::memcpy(rest, in + i, (n - i) * sizeof(float));
    step(rest, rest);
    std::memcpy(out + i, rest, (n - i) * sizeof(float));
  }
}

void find_borders(const S2fp8Map& map, const float* starts, S2fp8Borders& borders) {
  const DF df;
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const VI mu = hn::Set(di, map.mu), one = hn::Set(di, 1), infinity = hn::Set(di, 0x7F800000);
  const VF scale = hn::Set(df, map.scale);
  auto* least = reinterpret_cast<int32_t*>(borders.least);
  // Vectors at once, so that one's logarithm does not wait for the last one's.
  constexpr size_t kVectors = 4;
  for (size_t code = 0; code < kS2fp8Codes; code += kVectors * lanes) {
    // In each lane, of [low, high) the patterns from the border on have the code. 31 halvings leave
    // one pattern of 2^31.
    VF start[kVectors];
    VI low[kVectors], high[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      start[v] = hn::LoadU(df, starts + code + v * lanes);
      low[v] = one;
      high[v] = infinity;
    }
    for (int k = 0; k < 31; ++k) {
      for (size_t v = 0; v < kVectors; ++v) {
        const VI middle = hn::Add(low[v], hn::ShiftRight<1>(hn::Sub(high[v], low[v])));
        // Where nothing is left, `middle` is `high`, which changes nothing.
        const VF t = hn::Mul(hn::ConvertTo(df, hn::Sub(log2_fixed(middle), mu)), scale);
        const auto reached = hn::RebindMask(di, hn::Ge(t, start[v]));
        high[v] = hn::IfThenElse(reached, middle, high[v]);
        low[v] = hn::IfThenElse(reached, low[v], hn::Min(hn::Add(middle, one), high[v]));
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      const VI none = hn::Set(di, static_cast<int32_t>(kNoMagnitude));
      hn::StoreU(hn::IfThenElse(hn::Lt(low[v], infinity), low[v], none), di, least + code + v * lanes);
    }
  }
  borders.least[0] = 0;
}

void restore(const S2fp8Map& map, uint32_t* value) {
  const DF df;
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const int32_t near = (map.mu + (1 << (kLogFraction - 1))) >> kLogFraction;
  const VF alpha = hn::Set(df, map.alpha),
           mu_rest = hn::Set(df, static_cast<float>(map.mu - near * (1 << kLogFraction)) * 0x1p-22f);
  const VF magic = hn::Set(df, kRoundMagic), one = hn::Set(df, 1.0f);
  const VI infinity = hn::Set(di, 0x7F800000), largest = hn::Set(di, 0x7F7FFFFF), bias = hn::Set(di, 127);
  for (uint32_t code = 0; code < kS2fp8Codes; code += static_cast<uint32_t>(lanes)) {
    const VI y = hn::BitCast(di, hn::LoadU(hn::ScalableTag<uint32_t>(), value + code));
    const auto usable = hn::And(hn::Gt(y, hn::Zero(di)), hn::Lt(y, infinity));
    const VF log = hn::ConvertTo(df, log2_fixed(hn::IfThenElse(usable, y, hn::BitCast(di, one))));
    const VF rest = hn::Add(hn::Div(hn::Mul(log, hn::Set(df, 0x1p-22f)), alpha), mu_rest);
    const VF n = hn::Sub(hn::Add(rest, magic), magic);
    const VF r = hn::Sub(rest, n);
    const VF power = hn::MulAdd(polynomial<exp2_coefficient, kExp2Degree>(r), r, one);
    const VI exponent = hn::Add(hn::Set(di, near), hn::ConvertTo(di, n));
    // Halved toward zero, as integers are.
    const VI half = hn::ShiftRight<1>(hn::Sub(exponent, hn::ShiftRight<31>(exponent)));
    const VF first = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const VF second = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
    const VI product = hn::BitCast(di, hn::Mul(hn::Mul(power, first), second));
    VI x = hn::Min(hn::Max(product, hn::Set(di, 1)), largest);
    x = hn::IfThenElse(hn::Gt(exponent, hn::Set(di, 128)), largest, x);
    x = hn::IfThenElse(hn::Lt(exponent, hn::Set(di, -151)), hn::Set(di, 1), x);
    const hn::ScalableTag<uint32_t> du;
    hn::StoreU(hn::BitCast(du, hn::IfThenElse(usable, x, y)), du, value + code);
  }
}

#else

S2fp8Survey survey(const float* in, size_t n) { return reference_survey(in, n); }

void squeeze(const S2fp8Map& map, const float* in, size_t n, float* out) {
  reference_squeeze(map, in, n, out);
}

void find_borders(const S2fp8Map& map, const float* starts, S2fp8Borders& borders) {
  reference_find_borders(map, starts, borders);
}

void restore(const S2fp8Map& map, uint32_t* value) { reference_restore(map, value); }

#endif

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86

// Tables in registers: one instruction looks up in two of them.
using DI16 = hn::CappedTag<int32_t, 16>;
using DS32 = hn::CappedTag<uint16_t, 32>;
using V16 = hn::Vec<DI16>;
using V32 = hn::Vec<DS32>;

// 128 numbers of 32 bits.
class NumberTable {
 public:
  explicit NumberTable(const uint32_t* numbers) {
    const hn::Rebind<uint32_t, DI16> du;
    for (size_t k = 0; k < 8; ++k) table_[k] = hn::BitCast(DI16(), hn::LoadU(du, numbers + 16 * k));
  }

  // By the low 7 bits.
  HWY_INLINE V16 operator()(V16 index) const {
    const DI16 di;
    const auto odd = hn::TestBit(index, hn::Set(di, 0x20)), high = hn::TestBit(index, hn::Set(di, 0x40));
    return hn::IfThenElse(high, hn::IfThenElse(odd, pair(3, index), pair(2, index)),
                          hn::IfThenElse(odd, pair(1, index), pair(0, index)));
  }

 private:
  HWY_INLINE V16 pair(size_t k, V16 index) const {
    return V16{_mm512_permutex2var_epi32(table_[2 * k].raw, index.raw, table_[2 * k + 1].raw)};
  }
  V16 table_[8];
};

// 512 bytes, two to a word.
class ByteTable {
 public:
  explicit ByteTable(const uint8_t* bytes) {
    for (size_t k = 0; k < 8; ++k) std::memcpy(&table_[k], bytes + 64 * k, 64);
  }

  HWY_INLINE V32 operator()(V32 index) const {
    const DS32 ds;
    const V32 word = hn::ShiftRight<1>(index);
    const auto odd = hn::TestBit(word, hn::Set(ds, 0x40)), high = hn::TestBit(word, hn::Set(ds, 0x80));
    const V32 two = hn::IfThenElse(high, hn::IfThenElse(odd, pair(3, word), pair(2, word)),
                                   hn::IfThenElse(odd, pair(1, word), pair(0, word)));
    const auto second = hn::TestBit(index, hn::Set(ds, 1));
    return hn::And(hn::IfThenElse(second, hn::ShiftRight<8>(two), two), hn::Set(ds, 0xFF));
  }

 private:
  HWY_INLINE V32 pair(size_t k, V32 index) const {
    return V32{_mm512_permutex2var_epi16(table_[2 * k].raw, index.raw, table_[2 * k + 1].raw)};
  }
  V32 table_[8];
};

uint64_t encode_by_borders(const S2fp8Borders& borders, const float* in, size_t n, uint8_t* out) {
  const DI16 di;
  const DS32 ds;
  const hn::Rebind<uint32_t, DI16> du;
  const hn::Rebind<uint8_t, DI16> db;
  const hn::Rebind<float, DI16> df;
  constexpr size_t kLanes = 16, kStep = 2 * kLanes;
  const NumberTable least(borders.least);
  const ByteTable most(borders.most);
  const V16 magnitude_mask = hn::Set(di, 0x7FFFFFFF), one = hn::Set(di, 1),
            first = hn::Set(di, static_cast<int32_t>(borders.least[1]));
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(borders.shift));
  uint64_t zeros = 0;
  const auto step = [&](const float* from, uint8_t* to) HWY_ATTR {
    V16 x[2], magnitude[2], place[2];
    for (size_t v = 0; v < 2; ++v) {
      x[v] = hn::BitCast(di, hn::LoadU(df, from + kLanes * v));
      magnitude[v] = hn::And(x[v], magnitude_mask);
      place[v] = V16{_mm512_srl_epi32(hn::Sub(hn::Max(magnitude[v], first), first).raw, shift)};
    }
    // Narrowing and widening both take 128 bits of each vector in turns: together they keep the order.
    const V32 bucket =
        hn::Min(V32{_mm512_packus_epi32(place[0].raw, place[1].raw)}, hn::Set(ds, kS2fp8Buckets - 1));
    const V32 both = most(bucket), none = hn::Zero(ds);
    const V16 top[2] = {V16{_mm512_unpacklo_epi16(both.raw, none.raw)},
                        V16{_mm512_unpackhi_epi16(both.raw, none.raw)}};
    for (size_t v = 0; v < 2; ++v) {
      const auto less = hn::Lt(magnitude[v], least(top[v]));
      const V16 code = hn::IfThenElse(less, hn::Sub(top[v], one), top[v]);
      zeros += hn::CountTrue(di, hn::Lt(magnitude[v], first));
      const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du, x[v])), hn::Set(du, 0x80));
      hn::StoreU(hn::TruncateTo(db, hn::Or(hn::BitCast(du, code), sign)), db, to + kLanes * v);
    }
  };
  size_t i = 0;
  for (; i + kStep <= n; i += kStep) step(in + i, out + i);
  if (i < n) {
    // The rest, padded with zeros.
    HWY_ALIGN float rest[kStep] = {};
    HWY_ALIGN uint8_t codes[kStep];
    std::memcpy(rest, in + i, (n - i) * sizeof(float));
    step(rest, codes);
    zeros -= kStep - (n - i);
    std::memcpy(out + i, codes, n - i);
  }
  return zeros;
}

void look_up(const uint32_t* value, const uint8_t* codes, size_t n, float* out) {
  const DI16 di;
  const hn::Rebind<uint32_t, DI16> du;
  const hn::Rebind<uint8_t, DI16> db;
  constexpr size_t kLanes = 16;
  const NumberTable values(value);
  const auto step = [&](const uint8_t* from, float* to) HWY_ATTR {
    const auto code = hn::PromoteTo(du, hn::LoadU(db, from));
    const auto magnitude = hn::BitCast(du, values(hn::BitCast(di, code)));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80)));
    hn::StoreU(hn::BitCast(hn::Rebind<float, DI16>(), hn::Or(magnitude, sign)), hn::Rebind<float, DI16>(),
               to);
  };
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(codes + i, out + i);
  if (i < n) reference_look_up(value, codes + i, n - i, out + i);
}

#elif HWY_TARGET == HWY_AVX2

// Tables in memory, of which a vector of numbers is gathered at once.
uint64_t encode_by_borders(const S2fp8Borders& borders, const float* in, size_t n, uint8_t* out) {
  using DI8 = hn::CappedTag<int32_t, 8>;
  const DI8 di;
  const hn::Rebind<uint8_t, DI8> db;
  const hn::Rebind<float, DI8> df;
  constexpr size_t kLanes = 8;
  const auto* least = reinterpret_cast<const int32_t*>(borders.least);
  const auto* most = reinterpret_cast<const int32_t*>(borders.most);
  const auto magnitude_mask = hn::Set(di, 0x7FFFFFFF), first = hn::Set(di, least[1]),
             last_bucket = hn::Set(di, static_cast<int32_t>(kS2fp8Buckets - 1)), byte = hn::Set(di, 0xFF),
             sign_bit = hn::Set(di, 0x80);
  const int shift = static_cast<int>(borders.shift);
  uint64_t zeros = 0;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto x = hn::BitCast(di, hn::LoadU(df, in + i));
    const auto magnitude = hn::And(x, magnitude_mask);
    const auto bucket =
        hn::Min(hn::ShiftRightSame(hn::Sub(hn::Max(magnitude, first), first), shift), last_bucket);
    const auto top = hn::And(hn::GatherOffset(di, most, bucket), byte);
    const auto less = hn::VecFromMask(di, hn::Lt(magnitude, hn::GatherIndex(di, least, top)));
    zeros += hn::CountTrue(di, hn::Lt(magnitude, first));
    const auto code = hn::Or(hn::Add(top, less), hn::And(hn::ShiftRight<24>(x), sign_bit));
    hn::StoreU(hn::DemoteTo(db, code), db, out + i);
  }
  return zeros + (i < n ? reference_encode_by_borders(borders, in + i, n - i, out + i) : 0);
}

void look_up(const uint32_t* value, const uint8_t* codes, size_t n, float* out) {
  reference_look_up(value, codes, n, out);
}

#else

uint64_t encode_by_borders(const S2fp8Borders& borders, const float* in, size_t n, uint8_t* out) {
  return reference_encode_by_borders(borders, in, n, out);
}

void look_up(const uint32_t* value, const uint8_t* codes, size_t n, float* out) {
  reference_look_up(value, codes, n, out);
}

#endif

}  // namespace ulp::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::kernels {

HWY_EXPORT(survey);
HWY_EXPORT(squeeze);
HWY_EXPORT(find_borders);
HWY_EXPORT(encode_by_borders);
HWY_EXPORT(restore);
HWY_EXPORT(look_up);

void fill_s2fp8_kernels(Table& table) {
  table.survey = HWY_DYNAMIC_DISPATCH(survey);
  table.squeeze = HWY_DYNAMIC_DISPATCH(squeeze);
  table.find_borders = HWY_DYNAMIC_DISPATCH(find_borders);
  table.encode_by_borders = HWY_DYNAMIC_DISPATCH(encode_by_borders);
  table.restore = HWY_DYNAMIC_DISPATCH(restore);
  table.look_up = HWY_DYNAMIC_DISPATCH(look_up);
}

}  // namespace ulp::kernels
#endif
