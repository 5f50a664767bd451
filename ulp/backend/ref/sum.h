// The sums of matrix products and convolutions, term by term. Private to the folder.
#pragma once

#include "ulp/backend/ref/reference_task.h"
#include "ulp/numeric/scalar.h"

namespace ulp::ref {

// In double, rounded to fp32 once.
class WideSum {
 public:
  explicit WideSum(const Call& /*call*/) {}
  void add(float a, float b) { sum_ += static_cast<double>(a) * b; }
  void add(float term) { sum_ += term; }
  float result() const { return rounded(sum_); }

 private:
  double sum_ = 0;
};

// In a narrow accumulator: products and additions are fp32, and each sum is rounded to the
// accumulator's format, to nearest-even, before the next term comes. A NaN is settled first, since
// a format without one keeps its sign.
class NarrowSum {
 public:
  explicit NarrowSum(const Call& call) : spec_(*call.accumulator) {}
  void add(float a, float b) { add(a * b); }
  void add(float term) {
    const uint32_t wide = float_bits(settle_nan(sum_ + term));
    sum_ = bits_float(decode_scalar(spec_, encode_scalar(spec_, Round::nearest_even, wide, 0).code));
  }
  float result() const { return settle_nan(sum_); }

 private:
  const CodecSpec& spec_;
  float sum_ = 0;
};

}  // namespace ulp::ref
