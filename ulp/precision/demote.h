// Assignments by groups: what the policies of groups give, for whoever chooses groups by other
// means.
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

// Groups by what their demotion costs: error over saved bits, the cheapest first, larger ones first
// where that is equal. The greedy way to pack a knapsack: with the errors of groups as if they
// added up, no set of groups that saves as much as a beginning of this order has a smaller sum.
std::vector<int> order_by_error(std::span<const double> errors, std::span<const uint64_t> saved,
                                std::span<const size_t> sizes);

}  // namespace ulp
