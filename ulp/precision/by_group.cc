// Policies that demote whole groups. The paper's Algorithm 1, with the order of its ablations.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ulp/base/philox.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

// Each group's place in a random order. The key is "groups" over the seed: no word serves anything else.
uint64_t draw(uint64_t seed, int group) {
  const uint64_t key = seed ^ 0x67726F757073u;
  const PhiloxWords words = philox({{static_cast<uint32_t>(group), 0, 0, 0}},
                                   {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}});
  return uint64_t{words.word[1]} << 32 | words.word[0];
}

class GroupPolicy : public Policy {
 public:
  GroupPolicy(GroupOrder order, double ratio, uint64_t seed, const PolicyOptions& options)
      : order_(order), ratio_(ratio), seed_(seed), options_(options) {}

  Assignment assign(const Graph& graph) const override {
    const std::vector<CountedTensor> tensors = counted_tensors(graph);
    const std::vector<size_t> sizes = group_elements(tensors);
    std::vector<int> chosen = choose(sizes);
    std::vector<bool> low(sizes.size());
    for (const int group : chosen) low[static_cast<size_t>(group)] = true;
    Assignment assignment = assign_low(graph, tensors, options_, [&](const CountedTensor& tensor) {
      return low[static_cast<size_t>(tensor.group)];
    });
    assignment.low_groups = std::move(chosen);
    return assignment;
  }

 private:
  std::vector<int> choose(const std::vector<size_t>& sizes) const {
    const auto all = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
    std::vector<int> chosen;
    size_t sum = 0;
    for (const int group : ordered(sizes)) {
      // The quotient, not a product: a sum that is exactly a tenth of all reaches 0.1.
      if (static_cast<double>(sum) / all >= ratio_) break;
      chosen.push_back(group);
      sum += sizes[static_cast<size_t>(group)];
    }
    return chosen;
  }

  std::vector<int> ordered(const std::vector<size_t>& sizes) const {
    std::vector<int> groups(sizes.size());
    std::iota(groups.begin(), groups.end(), 0);
    // Stable sorts, so that equal ones stay in the order of their numbers.
    const auto by = [&groups](const auto& key) {
      std::stable_sort(groups.begin(), groups.end(), [&key](int a, int b) { return key(a) < key(b); });
    };
    const auto size = [&sizes](int group) { return sizes[static_cast<size_t>(group)]; };
    switch (order_) {
      case GroupOrder::number:
        break;
      case GroupOrder::largest_first:
        std::stable_sort(groups.begin(), groups.end(), [&size](int a, int b) { return size(a) > size(b); });
        break;
      case GroupOrder::smallest_first:
        by(size);
        break;
      case GroupOrder::random:
        by([this](int group) { return draw(seed_, group); });
        break;
    }
    return groups;
  }

  const GroupOrder order_;
  const double ratio_;
  const uint64_t seed_;
  const PolicyOptions options_;
};

}  // namespace

std::unique_ptr<Policy> group_policy(GroupOrder order, double ratio, uint64_t seed,
                                     const PolicyOptions& options) {
  return std::make_unique<GroupPolicy>(order, ratio, seed, options);
}

}  // namespace ulp
