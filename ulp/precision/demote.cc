#include "ulp/precision/demote.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "ulp/precision/policies.h"

namespace ulp {

Assignment demote_groups(const Graph& graph, std::span<const CountedTensor> tensors, std::vector<int> groups,
                         const PolicyOptions& options) {
  std::vector<bool> low(group_elements(tensors).size());
  for (const int group : groups) low[static_cast<size_t>(group)] = true;
  Assignment assignment = assign_low(graph, tensors, options, [&](const CountedTensor& tensor) {
    return low[static_cast<size_t>(tensor.group)];
  });
  assignment.low_groups = std::move(groups);
  return assignment;
}

std::vector<uint64_t> saved_bits(const Graph& graph, std::span<const CountedTensor> tensors,
                                 const PolicyOptions& options) {
  const uint64_t high = aggregate_bits(tensors, demote_groups(graph, tensors, {}, options));
  std::vector<uint64_t> saved(group_elements(tensors).size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const uint64_t with =
        aggregate_bits(tensors, demote_groups(graph, tensors, {static_cast<int>(i)}, options));
    // What lies beside the codes of a tiny tensor can outweigh what its codes save.
    saved[i] = high > with ? high - with : 0;
  }
  return saved;
}

std::vector<int> order_by_error(std::span<const double> errors, std::span<const uint64_t> saved,
                                std::span<const size_t> sizes) {
  // A group that saves nothing comes last, however little it disturbs.
  const auto cost = [&](int group) {
    const auto i = static_cast<size_t>(group);
    return saved[i] == 0 ? std::numeric_limits<double>::infinity()
                         : errors[i] / static_cast<double>(saved[i]);
  };
  std::vector<int> groups(errors.size());
  std::iota(groups.begin(), groups.end(), 0);
  std::stable_sort(groups.begin(), groups.end(), [&](int a, int b) {
    const double x = cost(a), y = cost(b);
    return x != y ? x < y : sizes[static_cast<size_t>(a)] > sizes[static_cast<size_t>(b)];
  });
  return groups;
}

}  // namespace ulp
