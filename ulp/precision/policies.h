// The policies one by one, as policy.cc makes them from text. Private to the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "ulp/precision/policy.h"

namespace ulp {

enum class GroupOrder : uint8_t { number, largest_first, smallest_first, random };

// Groups in an order until they hold the fraction `ratio` of all elements; by_group.cc.
std::unique_ptr<Policy> group_policy(GroupOrder order, double ratio, uint64_t seed,
                                     const PolicyOptions& options);

// The same in the order of order_by_error (demote.h), by the file at `path`, or where that is "" by what the options
// measure; by_group.cc.
std::unique_ptr<Policy> error_policy(double ratio, const std::string& path, const PolicyOptions& options);

// Groups until a step fits in so many bytes, above 0; by_peak.cc.
std::unique_ptr<Policy> peak_policy(int64_t bytes, const PolicyOptions& options);

// op, and op-out where what products write is low too; by_operator.cc.
std::unique_ptr<Policy> operator_policy(bool outputs, const PolicyOptions& options);
std::unique_ptr<Policy> amp_policy(const FloatFormat& format, const PolicyOptions& options);

// Reads the file; listed.cc.
std::unique_ptr<Policy> listed_policy(const std::string& path, const PolicyOptions& options);

// Names of the tensors that the first and the last matrix product read and write, with gradients, and of
// inputs.
std::set<std::string> end_tensors(const Graph& graph);

// The counted tensors that `low` wants, and that have a low format, low; the others high. Ends are kept where
// the options say so.
Assignment assign_low(const Graph& graph, std::span<const CountedTensor> tensors,
                      const PolicyOptions& options, const std::function<bool(const CountedTensor&)>& low);

}  // namespace ulp
