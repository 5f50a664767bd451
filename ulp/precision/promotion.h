// Promotion, the second half of the precision-assignment paper (Algorithm 2): a forward tensor that
// overflows too often goes to its high format, for good. Backward tensors are left to the loss
// scale, which can do for them what nothing can do for forward ones: the loss is linear in them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/graph/graph.h"
#include "ulp/numeric/stats.h"
#include "ulp/precision/assignment.h"

namespace ulp {

// The share of elements that may overflow in a step: "off" is none, else a number from 0 to 1.
// Throws an Error for other text.
std::optional<double> parse_promotion(std::string_view text);

// What a policy has unless told: 0.01, as in the paper. Off for policies with formats of their own:
// there is nothing to promote, or the paper that they are of knows no promotion.
std::optional<double> default_promotion(std::string_view policy);

struct Promotion {
  std::string tensor;
  Storage from, to;
  double overflow_ratio = 0;
};

// After the gradient of a step: the activations and weights stored low of which more than the
// threshold overflowed, in the order of their names. `stats` and `elements` say, by tensor of the
// graph, what was reported and how many elements were written.
std::vector<Promotion> overflowing(const Graph& graph, std::span<const EncodeStats> stats,
                                   std::span<const uint64_t> elements, double threshold,
                                   const Assignment& assignment);

}  // namespace ulp
