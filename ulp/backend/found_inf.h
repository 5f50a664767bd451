// When a loss scale skips a step: the loss is no finite number, or a gradient overflowed or became
// NaN where it was written. The host and every device go by this one rule.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulp/base/device.h"
#include "ulp/numeric/stats.h"

namespace ulp {

class Graph;
struct TensorId;

// Of `count` gradients the one numbered `first` and every `stride`-th after it, so that threads can
// share them. Tensors in fp32 report nothing, but without a loss there is no gradient.
template <typename Loss, typename StatsOf>
ULP_HD constexpr bool gradients_overflowed(Loss loss, uint32_t first, uint32_t count, uint32_t stride,
                                           const StatsOf& stats_of) {
  bool found = !(loss - loss == 0);
  for (uint32_t i = first; i < count; i += stride) {
    const EncodeStats& stats = stats_of(i);
    found = found || stats.overflow > 0 || stats.nan > 0;
  }
  return found;
}

// The gradients that count. A twin has the bits of its original, which has reported them.
std::vector<TensorId> checked_gradients(const Graph& graph);

// The rule for a whole step, with stats by tensor and the loss summed over its examples.
bool gradients_overflowed(double loss, const Graph& graph, std::span<const EncodeStats> stats);

}  // namespace ulp
