// Optimizer steps on ordinary values in as few instructions as possible. Rare cases are not checked
// per value, but once for the largest and smallest of several values; if the check fails, those
// values are recomputed by the careful path. Only for files compiled as kernels.
#pragma once

#include <cmath>

#include "ulp/backend/cuda/optimizer/update_device.h"

namespace ulp::cuda {

// The larger and the smaller; NaN if one is NaN.
__device__ inline float upper(float a, float b) {
#if defined(__CUDA_ARCH__)
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return a != a || b != b ? bits_float(kNanBits) : a > b ? a : b;
#endif
}
__device__ inline float lower(float a, float b) {
#if defined(__CUDA_ARCH__)
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
#else
  return a != a || b != b ? bits_float(kNanBits) : a < b ? a : b;
#endif
}

// All ones if they are equal, else 0.
__device__ inline uint32_t mask_equal(float a, float b) {
#if defined(__CUDA_ARCH__)
  uint32_t mask;
  asm("set.eq.u32.f32 %0, %1, %2;" : "=r"(mask) : "f"(a), "f"(b));
  return mask;
#else
  return a == b ? 0xFFFFFFFFu : 0u;
#endif
}

// The range of magnitudes of several values.
struct Magnitudes {
  float least = bits_float(0x7F800000u), most = 0;

  __device__ void add(float x) {
    least = lower(least, fabsf(x));
    most = upper(most, fabsf(x));
  }
  // None is NaN, and all lie in [low, high].
  __device__ bool within(float low, float high) const { return least >= low && most <= high; }
};

// Division and square root as the compiler generates them for -prec-div and -prec-sqrt, without the
// check of each operand. Results are IEEE's for the quotients and roots that may_divide() accepts.
struct Unchecked : Wide {
  static constexpr bool kUnsettled = true;

  __device__ static float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);
    const float q = __fmul_rn(a, r);
    return __fmaf_rn(r, __fmaf_rn(-b, q, a), q);
#else
    return a / b;
#endif
  }
  __device__ static float square_root(float x) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    const float s = __fmul_rn(x, r);
    return __fmaf_rn(__fmaf_rn(-s, s, x), __fmul_rn(r, 0.5f), s);
#else
    return sqrtf(x);
#endif
  }
  __device__ static float within(float x, float limit) { return upper(lower(x, limit), -limit); }
};

// Optimizers whose new states are far from zero whenever may_divide() accepts them.
template <typename Optimizer>
inline constexpr bool kAwayFromZero = false;
template <>
inline constexpr bool kAwayFromZero<Adam> = true;
template <>
inline constexpr bool kAwayFromZero<AdamW> = true;

// Whether an unchecked step is correct for these new states, except for NaN, which the weights and
// states show. `states` are the ranges over some elements, `s` the step's scalars.
template <typename Optimizer>
__device__ inline bool may_divide(const Optimizer& /*optimizer*/, const UpdateScalars& /*s*/,
                                  const Magnitudes* /*states*/) {
  return true;
}
// The denominator is between 2^-51 and 2^37, so neither the quotient, nor its reciprocal, nor a
// remainder comes near the ends of fp32's range.
__device__ inline bool may_divide(const AdamMoments& moments, const UpdateScalars& s,
                                  const Magnitudes* states) {
  const bool scalars =
      s.adam_root >= 0.5f && s.adam_root <= 0x1p16f && moments.eps >= 0 && moments.eps <= 0x1p16f;
  return scalars && states[0].within(0x1p-80f, 0x1p60f) && states[1].within(0x1p-100f, 0x1p40f);
}
__device__ inline bool may_divide(const Adam& adam, const UpdateScalars& s, const Magnitudes* states) {
  return may_divide(adam.moments, s, states);
}
__device__ inline bool may_divide(const AdamW& adamw, const UpdateScalars& s, const Magnitudes* states) {
  return may_divide(adamw.moments, s, states);
}

}  // namespace ulp::cuda
