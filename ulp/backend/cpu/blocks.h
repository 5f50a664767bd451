// The inner loops over a block of elements that stays in the first cache: one for each elementwise
// operator, and the sums of reductions. Compiled for every vector unit; the choice changes the
// speed, never a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ulp/numeric/rounding.h"

namespace ulp::blocks {

inline constexpr size_t kMaxInputs = 8, kMaxParams = 5, kMaxScalars = 2;

// A block begins at the first channel of a row. Channel values are given for a whole period: a
// number of rows, so that loops are long even with few channels.
struct StageArgs {
  float* out;
  const float* in[kMaxInputs];
  size_t inputs;
  const float* param[kMaxParams];  // (period)
  float scalar[kMaxScalars];
  size_t n, period;
  uint64_t first;      // the block's first element in its tensor
  RoundKey words;      // dropout's random words
  uint32_t threshold;  // an element below it is dropped
};
using StageLoop = void (*)(const StageArgs& args);

// The loop of an operator; null if it is not elementwise.
StageLoop stage_loop(std::string_view op);

// Sums over the rows of a block, for each place of the period: out[i] = sum over k of f(k period +
// i).
struct SumArgs {
  const float* in[2];
  const float* param[2];  // (period)
  float* out[2];          // (period)
  size_t n, period;
};
void sum_rows(const SumArgs& args);       // of in[0]
void sum_squares(const SumArgs& args);    // of (in[0] - param[0])^2
void sum_gradients(const SumArgs& args);  // of in[0], and of in[0] (in[1] - param[0]) param[1]

// Adds the sums of a period's places to their channels, in double.
void fold(const float* period_sums, size_t period, size_t channels, double* sums);

}  // namespace ulp::blocks
