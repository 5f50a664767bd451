// The two formats that a policy chooses between, for each kind of counted tensor: the C(t, hi) and
// C(t, lo) of the precision-assignment paper. A value; every one made here has no low format wider
// than its high one.
//
// Weight gradients have one format for both unless a second is named: the paper's experiments keep
// them high under every assignment.
#pragma once

#include <string_view>

#include "ulp/graph/graph.h"
#include "ulp/numeric/storage.h"

namespace ulp {

struct Candidates {
  struct Pair {
    Storage high, low;
    bool operator==(const Pair&) const = default;
    // Where both are one format, the tensor is never low.
    bool can_be_low() const { return high != low; }
  };
  Pair activation, activation_grad, weight, weight_grad;

  bool operator==(const Candidates&) const = default;
  // Of the four kinds; std::logic_error for another, which has no choice.
  const Pair& operator[](Kind kind) const;
};

// A preset, and what replaces its parts where it is not empty:
//
//   preset   high        low: activations, weights   low: activation gradients   weight gradients
//   hfp8     fp(6,9,0)   fp(4,3,4)                   fp(5,2,0)                   high
//   fp8      bf16        e4m3                        e5m2                        high
//   s2fp8    bf16        s2fp8                       s2fp8                       high
//
// `hi` is the high format of all kinds, `lo` the low one of activations and weights, `lo_grad` that
// of their gradients. `weight_grad` is the one format of weight gradients, or HI/LO for two. Throws
// an Error for names that are none and for a low format wider than its high one.
Candidates make_candidates(std::string_view preset = "hfp8", std::string_view hi = {},
                           std::string_view lo = {}, std::string_view lo_grad = {},
                           std::string_view weight_grad = {});

// Bits that an element takes, with its share of scales and extra bits; what a whole tensor has once
// (S2FP8's two words) is left out. Wider and narrower mean this.
double element_bits(const Storage& storage);

}  // namespace ulp
