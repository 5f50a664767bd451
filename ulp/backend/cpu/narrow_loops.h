// The inner loops of products that add up in a narrow accumulator, compiled for every vector unit. Lanes are sums of
// their own: each adds its terms in the order given and is rounded after each, to the bits of the scalar codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ulp/numeric/scalar.h"

namespace ulp::narrow {

// Rounding a sum to nearest-even in a few operations without branches.
struct SumRule {
  enum class Way : uint8_t {
    // |x| plus 2^23 spacings is rounded by the adder; the spacing follows the binade of |x| and stops at the subnormal
    // one.
    adder,
    // The format has fp32's exponents: half a unit is added to the pattern, and what is below a unit cut off.
    pattern,
  };
  Way way;
  int32_t lowest, up;  // adder: the lowest binade; from a binade to 2^23 of its spacings
  int32_t shift, odd, half,
      cut;             // pattern: to the last bit kept, its mask; just below half a unit, the bits kept
  int32_t finite;      // the largest pattern that does not overflow
  uint32_t over, nan;  // what an overflow and a NaN become
};

// None where neither way gives the codec's bits: formats with normal numbers below fp32's, and a few without mantissa.
std::optional<SumRule> sum_rule(const CodecSpec& spec);

// Rows of sums, each with the same terms for all its columns but one factor of its own:
//   sum[r][c] = round(sum[r][c] + a[r][t] b[t][c])   for each t in turn
struct Terms {
  float* sums;
  size_t rows, columns, count;
  size_t sums_row;  // floats from a row to the next
  const float* a;
  size_t a_row, a_term;
  const float* b;
  size_t b_term;
};
void add_terms(const SumRule& rule, const Terms& terms);

}  // namespace ulp::narrow
