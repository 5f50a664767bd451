// nearest_even.h for vectors, operation by operation. Highway compiles it once per target: include
// it after <hwy/highway.h> in a file that foreach_target.h repeats. All integers stay below 2^31,
// so signed vectors serve, whose comparisons every unit has.
#if defined(ULP_NUMERIC_NEAREST_EVEN_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ULP_NUMERIC_NEAREST_EVEN_SIMD_H_
#undef ULP_NUMERIC_NEAREST_EVEN_SIMD_H_
#else
#define ULP_NUMERIC_NEAREST_EVEN_SIMD_H_
#endif

#include "ulp/numeric/nearest_even.h"

HWY_BEFORE_NAMESPACE();
namespace ulp::lanes::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// `D` is a tag of floats; magnitudes and results are patterns.
template <typename D>
struct EvenByPattern {
  using DI = hn::RebindToSigned<D>;
  using VI = hn::Vec<DI>;

  explicit HWY_INLINE EvenByPattern(uint32_t dropped)
      : EvenByPattern(ulp::EvenByPattern::dropping(dropped)) {}

  HWY_INLINE VI raised(VI magnitude) const {
    return hn::Add(hn::Add(magnitude, addend), hn::And(hn::ShiftRightSame(magnitude, shift), odd));
  }
  HWY_INLINE VI code(VI magnitude) const { return hn::ShiftRightSame(raised(magnitude), shift); }
  HWY_INLINE VI number(VI magnitude) const { return hn::And(raised(magnitude), keep); }

  VI addend, odd, keep;
  int shift;

 private:
  explicit HWY_INLINE EvenByPattern(const ulp::EvenByPattern& one)
      : addend(hn::Set(DI(), static_cast<int32_t>(one.addend))),
        odd(hn::Set(DI(), static_cast<int32_t>(one.odd))),
        keep(hn::Set(DI(), static_cast<int32_t>(one.keep))),
        shift(static_cast<int>(one.shift)) {}
};

template <typename D>
struct EvenByAdder {
  using DI = hn::RebindToSigned<D>;
  using V = hn::Vec<D>;
  using VI = hn::Vec<DI>;

  HWY_INLINE EvenByAdder(uint32_t dropped, uint32_t lowest)
      : EvenByAdder(ulp::EvenByAdder::of(dropped, lowest), static_cast<int>(dropped)) {}

  HWY_INLINE VI spacings(VI magnitude) const {
    return hn::Max(hn::Add(hn::And(magnitude, exponent), up), least);
  }
  // The code plus `offset`, which the caller subtracts: perhaps from narrower lanes.
  HWY_INLINE VI code(VI magnitude) const {
    const VI many = spacings(magnitude);
    const VI sum = hn::BitCast(DI(), hn::Add(hn::BitCast(D(), magnitude), hn::BitCast(D(), many)));
    return hn::Add(hn::ShiftRightSame(many, shift), hn::Sub(sum, many));
  }
  HWY_INLINE VI number(VI magnitude) const {
    const V many = hn::BitCast(D(), spacings(magnitude));
    return hn::BitCast(DI(), hn::Sub(hn::Add(hn::BitCast(D(), magnitude), many), many));
  }

  VI exponent, up, least;
  int shift, offset;

 private:
  HWY_INLINE EvenByAdder(const ulp::EvenByAdder& one, int dropped)
      : exponent(hn::Set(DI(), 0x7F800000)),
        up(hn::Set(DI(), static_cast<int32_t>(one.up))),
        least(hn::Set(DI(), static_cast<int32_t>(one.least))),
        shift(dropped),
        offset(static_cast<int>(0u - one.base)) {}
};

}  // namespace ulp::lanes::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
