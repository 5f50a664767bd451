// Assignments by groups, for policies and for whoever chooses groups by other means.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulp/precision/policy.h"

namespace ulp {

// Everything high, but what can be low of these groups, which are kept in their order. `tensors`
// are the counted ones of the graph.
Assignment demote_groups(const Graph& graph, std::span<const CountedTensor> tensors, std::vector<int> groups,
                         const PolicyOptions& options);

// By group: the bits of the papers' aggregate that are saved if it is low.
std::vector<uint64_t> saved_bits(const Graph& graph, std::span<const CountedTensor> tensors,
                                 const PolicyOptions& options);

// Groups by the cost of their demotion, error over saved bits: the cheapest first, of equals the
// larger first. This is the greedy way to pack a knapsack. If errors of groups add up, no set of
// groups saves as much as a beginning of this order with a smaller sum of errors.
std::vector<int> order_by_error(std::span<const double> errors, std::span<const uint64_t> saved,
                                std::span<const size_t> sizes);

}  // namespace ulp
