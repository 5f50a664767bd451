// The inner loops of products with a narrow accumulator, compiled for every vector unit. Each lane
// is a sum of its own: it adds its terms in the given order and is rounded after each, to the bits
// of the scalar codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ulp/numeric/scalar.h"

namespace ulp::narrow {

// Rounding a sum to nearest even, in one of the two ways of nearest_even.h.
struct SumRule {
  enum class Way : uint8_t { adder, pattern };
  Way way;
  uint32_t dropped;    // fp32 mantissa bits that the format does not have
  uint32_t lowest;     // adder: pattern of the smallest normal number
  int32_t finite;      // the largest pattern that does not overflow
  uint32_t over, nan;  // what an overflow and a NaN become
};

// None if neither way gives the codec's bits: formats with normal numbers below fp32's, and a few
// without mantissa.
std::optional<SumRule> sum_rule(const CodecSpec& spec);

// Rows of sums. All columns of a row share one factor of each term:
//
//   sum[r][c] = round(sum[r][c] + a[r][t] b[t][c])   for each t in turn
struct Terms {
  float* sums;
  size_t rows, columns, count;
  size_t sums_row;  // floats from one row to the next
  const float* a;
  size_t a_row, a_term;
  const float* b;
  size_t b_term;
};
void add_terms(const SumRule& rule, const Terms& terms);

}  // namespace ulp::narrow
