#include "ulp/backend/cpu/narrow_loops.h"

#include <cmath>
#include <type_traits>

#include "ulp/numeric/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulp/backend/cpu/narrow_loops.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ulp/numeric/nearest_even_simd.h"

HWY_BEFORE_NAMESPACE();
namespace ulp::narrow::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace lanes = ulp::lanes::HWY_NAMESPACE;

// A rule in the lanes of a vector.
template <SumRule::Way way, typename D>
class Rounder {
  using DI = hn::RebindToSigned<D>;
  using V = hn::Vec<D>;
  using VI = hn::Vec<DI>;
  using Even = std::conditional_t<way == SumRule::Way::adder, lanes::EvenByAdder<D>, lanes::EvenByPattern<D>>;

 public:
  explicit HWY_INLINE Rounder(const SumRule& rule)
      : magnitude_(hn::Set(DI(), 0x7FFFFFFF)),
        infinity_(hn::Set(DI(), 0x7F800000)),
        finite_(hn::Set(DI(), rule.finite)),
        over_(hn::BitCast(D(), hn::Set(DI(), static_cast<int32_t>(rule.over)))),
        nan_(hn::BitCast(D(), hn::Set(DI(), static_cast<int32_t>(rule.nan)))),
        even_(even(rule)) {}

  HWY_INLINE V operator()(V x) const {
    const D d;
    const DI di;
    const VI bits = hn::BitCast(di, x), magnitude = hn::And(bits, magnitude_);
    V rounded = hn::BitCast(d, even_.number(magnitude));
    rounded = hn::IfThenElse(hn::RebindMask(d, hn::Gt(magnitude, finite_)), over_, rounded);
    rounded = hn::Or(rounded, hn::BitCast(d, hn::Xor(bits, magnitude)));
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(magnitude, infinity_)), nan_, rounded);
  }

 private:
  static HWY_INLINE Even even(const SumRule& rule) {
    if constexpr (way == SumRule::Way::adder) {
      return Even(rule.dropped, rule.lowest);
    } else {
      return Even(rule.dropped);
    }
  }

  VI magnitude_, infinity_, finite_;
  V over_, nan_;
  Even even_;
};

// As many sums at a time as hide the latency of rounding.
constexpr size_t kRows = 4;

template <size_t rows, SumRule::Way way, typename D>
HWY_INLINE void add_to_rows(const Rounder<way, D>& round, const Terms& t, size_t row, size_t column) {
  static_assert(rows >= 1 && rows <= kRows);
  const D d;
  float* sums = t.sums + row * t.sums_row + column;
  const float* a = t.a + row * t.a_row;
  const float* b = t.b + column;
  const size_t row1 = rows > 1 ? 1 : 0, row2 = rows > 2 ? 2 : 0, row3 = rows > 3 ? 3 : 0;
  auto sum0 = hn::LoadU(d, sums), sum1 = hn::LoadU(d, sums + row1 * t.sums_row),
       sum2 = hn::LoadU(d, sums + row2 * t.sums_row), sum3 = hn::LoadU(d, sums + row3 * t.sums_row);
  for (size_t i = 0; i < t.count; ++i, a += t.a_term, b += t.b_term) {
    const auto factor = hn::LoadU(d, b);
    sum0 = round(hn::Add(sum0, hn::Mul(hn::Set(d, a[0]), factor)));
    if constexpr (rows > 1) sum1 = round(hn::Add(sum1, hn::Mul(hn::Set(d, a[t.a_row]), factor)));
    if constexpr (rows > 2) sum2 = round(hn::Add(sum2, hn::Mul(hn::Set(d, a[2 * t.a_row]), factor)));
    if constexpr (rows > 3) sum3 = round(hn::Add(sum3, hn::Mul(hn::Set(d, a[3 * t.a_row]), factor)));
  }
  hn::StoreU(sum0, d, sums);
  if constexpr (rows > 1) hn::StoreU(sum1, d, sums + row1 * t.sums_row);
  if constexpr (rows > 2) hn::StoreU(sum2, d, sums + row2 * t.sums_row);
  if constexpr (rows > 3) hn::StoreU(sum3, d, sums + row3 * t.sums_row);
}

// The columns from `column` on that fill whole vectors; returns the first column left.
template <SumRule::Way way, typename D>
HWY_INLINE size_t add_to_columns(D d, const SumRule& rule, const Terms& t, size_t column) {
  const size_t lanes = hn::Lanes(d);
  if (column + lanes > t.columns) return column;
  const Rounder<way, D> round(rule);
  for (; column + lanes <= t.columns; column += lanes) {
    size_t row = 0;
    for (; row + kRows <= t.rows; row += kRows) add_to_rows<kRows>(round, t, row, column);
    switch (t.rows - row) {
      case 3:
        add_to_rows<3>(round, t, row, column);
        break;
      case 2:
        add_to_rows<2>(round, t, row, column);
        break;
      case 1:
        add_to_rows<1>(round, t, row, column);
        break;
      default:
        break;
    }
  }
  return column;
}

template <SumRule::Way way>
HWY_INLINE void add_all(const SumRule& rule, const Terms& terms) {
  size_t column = add_to_columns<way>(hn::ScalableTag<float>(), rule, terms, 0);
  column = add_to_columns<way>(hn::CappedTag<float, 4>(), rule, terms, column);
  add_to_columns<way>(hn::CappedTag<float, 1>(), rule, terms, column);
}

void add_terms(const SumRule& rule, const Terms& terms) {
  if (rule.way == SumRule::Way::adder) {
    add_all<SumRule::Way::adder>(rule, terms);
  } else {
    add_all<SumRule::Way::pattern>(rule, terms);
  }
}

}  // namespace ulp::narrow::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulp::narrow {

HWY_EXPORT(add_terms);

void add_terms(const SumRule& rule, const Terms& terms) { HWY_DYNAMIC_DISPATCH(add_terms)(rule, terms); }

namespace {

uint32_t rounded(const CodecSpec& spec, uint32_t pattern) {
  return decode_scalar(spec, encode_scalar(spec, Round::nearest_even, pattern, 0).code);
}

// Codes are monotonic in the values, so there is a first pattern that overflows.
uint32_t first_overflow(const CodecSpec& spec) {
  uint32_t finite = 0, over = 0x7F800000u;
  while (over - finite > 1) {
    const uint32_t middle = finite + (over - finite) / 2;
    const bool overflows = encode_scalar(spec, Round::nearest_even, middle, 0).event == RangeEvent::overflow;
    (overflows ? over : finite) = middle;
  }
  return over;
}

}  // namespace

std::optional<SumRule> sum_rule(const CodecSpec& spec) {
  SumRule rule{};
  rule.finite = static_cast<int32_t>(first_overflow(spec)) - 1;
  rule.over = rounded(spec, 0x7F800000u);
  rule.nan = rounded(spec, float_bits(settle_nan(std::nanf(""))));
  const int32_t dropped = 23 - spec.man;
  rule.dropped = static_cast<uint32_t>(dropped);
  if (spec.emin == -126 && spec.man >= 1) {
    rule.way = SumRule::Way::pattern;
    return rule;
  }
  // The largest constant that is added must be a number.
  const bool fits = spec.emin >= -126 && dropped >= 1 && (rule.finite >> 23) + dropped <= 254 &&
                    spec.emin + 127 + dropped <= 254;
  if (!fits) return {};
  rule.way = SumRule::Way::adder;
  rule.lowest = static_cast<uint32_t>(spec.emin + 127) << 23;
  return rule;
}

}  // namespace ulp::narrow
#endif
