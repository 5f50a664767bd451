// What the bounds of operators that add up are made of, in double and apart from any kernel.
//
// A sum of n products in fp32, in any order, with fma or without, rounding or truncating, is off by
// at most
//     2 (n + 8) 2^-23 sum |a||b|
// which is the contract's bound. The 8 leaves room for a few operations on each term or on the
// result, and for the reference's own rounding. An operator that is a polynomial in such sums is
// off by at most that share of its magnitude: the same expression with every term replaced by its
// absolute value. Numbers below 2^-126 are spaced 2^-149 apart, so each term may lose that much
// besides. Where an operator divides by or takes the exponential of something rounded, what that
// does is worked out beside it.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "tests/conformance/conformance.h"

namespace ulp::conformance {

inline double share(double n) { return 2 * (n + 8) * 0x1p-23; }
inline double dust(double n) { return (n + 8) * 0x1p-149; }
inline constexpr double kLargest = std::numeric_limits<float>::max(), kBeyond = 2 * kLargest;
// Where the magnitude is beyond fp32, so may be a sum on its way: then nothing is demanded. Where
// it is infinite or NaN because an input is, every order of summation ends in what the reference
// has: nothing is allowed.
inline double within_fp32(double magnitude, double bound) {
  if (!std::isfinite(magnitude)) return 0;
  return magnitude > kLargest ? std::numeric_limits<double>::infinity() : bound;
}
inline size_t at(int64_t i) { return static_cast<size_t>(i); }

// The number of terms and the magnitude of each element's sum.
class Sums {
 public:
  explicit Sums(size_t elements) : terms_(elements), magnitude_(elements) {}
  explicit Sums(const Shape& shape) : Sums(shape.elements()) {}
  void add(int64_t i, double product) {
    ++terms_[at(i)];
    magnitude_[at(i)] += std::abs(product);
  }
  double magnitude(size_t i) const { return magnitude_[i]; }
  // The sums times a factor.
  std::vector<double> allowed(double factor = 1) const {
    std::vector<double> bound(terms_.size());
    for (size_t i = 0; i < bound.size(); ++i) {
      bound[i] = within_fp32(magnitude_[i], share(terms_[i]) * magnitude_[i] * factor + dust(terms_[i]));
    }
    return bound;
  }

 private:
  std::vector<double> terms_, magnitude_;
};

// The rules of each file.
std::span<const Rule> sum_rules();
std::span<const Rule> composed_rules();

}  // namespace ulp::conformance
