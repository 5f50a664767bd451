// Policies that demote whole groups in an order of their own. The paper's Algorithm 1, with the
// orders of its ablations, and with the order by what pilot steps measured.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/philox.h"
#include "ulp/precision/demote.h"
#include "ulp/precision/json_file.h"
#include "ulp/precision/policies.h"
#include "ulp/precision/sensitivities.h"

namespace ulp {
namespace {

using Tensors = std::span<const CountedTensor>;

enum class GroupOrder : uint8_t { number, largest_first, smallest_first, random };

// Each group's place in a random order. The key is "groups" over the seed: no word serves anything else.
uint64_t draw(uint64_t seed, int group) {
  const uint64_t key = seed ^ 0x67726F757073u;
  const PhiloxWords words = philox({{static_cast<uint32_t>(group), 0, 0, 0}},
                                   {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}});
  return uint64_t{words.word[1]} << 32 | words.word[0];
}

class GroupPolicy : public Policy {
 public:
  GroupPolicy(double ratio, const PolicyOptions& options) : ratio_(ratio), options_(options) {}

  Assignment assign(const Graph& graph) const override {
    const std::vector<CountedTensor> tensors = counted_tensors(graph);
    const std::vector<size_t> sizes = group_elements(tensors);
    return demote_groups(graph, tensors, choose(ordered(graph, tensors, sizes), sizes), options_);
  }

 protected:
  // All groups, the ones to demote first at the front.
  virtual std::vector<int> ordered(const Graph& graph, Tensors tensors,
                                   const std::vector<size_t>& sizes) const = 0;
  const PolicyOptions& options() const { return options_; }

 private:
  std::vector<int> choose(const std::vector<int>& order, const std::vector<size_t>& sizes) const {
    const auto all = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
    std::vector<int> chosen;
    size_t sum = 0;
    for (const int group : order) {
      // The quotient, not a product: a sum that is exactly a tenth of all reaches 0.1.
      if (static_cast<double>(sum) / all >= ratio_) break;
      chosen.push_back(group);
      sum += sizes[static_cast<size_t>(group)];
    }
    return chosen;
  }

  const double ratio_;
  const PolicyOptions options_;
};

class FixedOrderPolicy : public GroupPolicy {
 public:
  FixedOrderPolicy(GroupOrder order, double ratio, uint64_t seed, const PolicyOptions& options)
      : GroupPolicy(ratio, options), order_(order), seed_(seed) {}

 private:
  std::vector<int> ordered(const Graph&, Tensors, const std::vector<size_t>& sizes) const override {
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
  const uint64_t seed_;
};

class ErrorPolicy : public GroupPolicy {
 public:
  ErrorPolicy(double ratio, const std::string& path, const PolicyOptions& options)
      : GroupPolicy(ratio, options), path_(path) {
    if (!path.empty()) file_ = load_sensitivities(path);
  }

 private:
  std::vector<int> ordered(const Graph& graph, Tensors tensors,
                           const std::vector<size_t>& sizes) const override {
    const std::vector<double> errors = path_.empty() ? measured() : file_.errors;
    if (errors.size() != sizes.size()) refuse(errors.size(), sizes.size());
    return order_by_error(errors, saved_bits(graph, tensors, options()), sizes);
  }

  std::vector<double> measured() const {
    if (options().sensitivities) return options().sensitivities();
    fail("precision",
         "policy 'sensitivity:R' needs a file here, sensitivity:R:FILE: write one with `ulp sensitivity`");
  }

  [[noreturn]] void refuse(size_t got, size_t groups) const {
    if (path_.empty()) {
      fail("precision", "{} groups were measured, this model has {}", got, groups);
    }
    fail("precision",
         "sensitivity file '{}' ({}) has {} groups, this model has {}: write one for it "
         "with "
         "`ulp sensitivity`",
         path_, described(file_.network), got, groups);
  }

  const std::string path_;  // "": ask the options
  Sensitivities file_;
};

template <GroupOrder order>
std::unique_ptr<Policy> by_size(const PolicyRequest& request) {
  return std::make_unique<FixedOrderPolicy>(order, request.ratio(request.needed("a ratio R")), 0,
                                            request.options);
}

std::unique_ptr<Policy> by_chance(const PolicyRequest& request) {
  const std::string_view words = request.needed("a ratio R");
  const size_t colon = words.find(':');
  uint64_t seed = 0;
  if (colon != words.npos) {
    const std::string_view word = words.substr(colon + 1);
    const std::optional<uint64_t> value = request.number<uint64_t>(word);
    if (!value) request.refuse("SEED must be a whole number from 0 to 2^64 - 1, got '{}'", word);
    seed = *value;
  }
  return std::make_unique<FixedOrderPolicy>(GroupOrder::random, request.ratio(words.substr(0, colon)), seed,
                                            request.options);
}

std::unique_ptr<Policy> by_error(const PolicyRequest& request) {
  const std::string_view words = request.needed("a ratio R");
  const size_t colon = words.find(':');
  const double ratio = request.ratio(words.substr(0, colon));
  const std::string_view path = colon == words.npos ? std::string_view() : words.substr(colon + 1);
  if (colon != words.npos && path.empty())
    request.refuse("it needs a file after the second colon, or no colon");
  return std::make_unique<ErrorPolicy>(ratio, std::string(path), request.options);
}

}  // namespace

// Every tensor low.
constinit const PolicyInfo uniform_policy = {
    "uniform", "uniform", "uniform", [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
      return std::make_unique<FixedOrderPolicy>(GroupOrder::number, 1, 0, request.options);
    }};

// Whole groups low, the largest first, until they hold the fraction R of all elements.
constinit const PolicyInfo size_policy = {"size", "size:R", "size:0.4", by_size<GroupOrder::largest_first>};

// The same, the smallest first.
constinit const PolicyInfo size_inc_policy = {"size-inc", "size-inc:R", "size-inc:0.4",
                                              by_size<GroupOrder::smallest_first>};

// The same in a random order, which follows from the seed (0 unless told) alone.
constinit const PolicyInfo random_policy = {"random", "random:R[:SEED]", "random:0.4:3", by_chance};

// The same, those first whose demotion disturbs the gradient least for the bits it saves.
constinit const PolicyInfo sensitivity_policy = {"sensitivity", "sensitivity:R[:FILE]", "sensitivity:0.4",
                                                 by_error};

}  // namespace ulp
