// peak:BYTES. The aggregate that the papers count holds every tensor of a step; a step needs memory
// only for those that are alive together. So groups are demoted by what they free at the moment
// when most is in use, which moves as they shrink.
#include <algorithm>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/precision/demote.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

class PeakPolicy : public Policy {
 public:
  PeakPolicy(int64_t bytes, const PolicyOptions& options)
      : bytes_(static_cast<size_t>(bytes)), options_(options) {}

  Assignment assign(const Graph& graph) const override {
    if (!options_.peak)
      fail("precision", "policy '{}' needs plans of a step, and there are none here", text());
    const std::vector<CountedTensor> tensors = counted_tensors(graph);
    const std::vector<size_t> sizes = group_elements(tensors);
    const auto with = [&](std::vector<int> groups) {
      return demote_groups(graph, tensors, std::move(groups), options_);
    };
    std::vector<int> low;
    PeakUse use = options_.peak(with(low));
    size_t least = use.bytes, least_low = 0;
    while (use.bytes > bytes_) {
      const int next = pick(graph, tensors, sizes, low, use);
      if (next < 0) {
        fail("precision",
             "policy '{}': the smallest step that was found takes {} bytes, with {} of {} groups low: give "
             "so much or "
             "more",
             text(), least, least_low, sizes.size());
      }
      low.push_back(next);
      use = options_.peak(with(low));
      // Narrow tensors can need workspace: a demotion does not always make the peak smaller.
      if (use.bytes < least) {
        least = use.bytes;
        least_low = low.size();
      }
    }
    keep_needed(low, with);
    return with(std::move(low));
  }

 private:
  std::string text() const { return "peak:" + bytes_with_unit(static_cast<int64_t>(bytes_)); }

  // The group to demote next, -1 where all are low.
  int pick(const Graph& graph, std::span<const CountedTensor> tensors, const std::vector<size_t>& sizes,
           const std::vector<int>& low, const PeakUse& use) const {
    const std::set<std::string> live(use.live.begin(), use.live.end());
    const std::set<std::string> ends =
        options_.keep_first_last ? end_tensors(graph) : std::set<std::string>();
    std::vector<double> freed(sizes.size());
    for (const CountedTensor& tensor : tensors) {
      if (!live.contains(tensor.name) || ends.contains(tensor.name)) continue;
      const Candidates::Pair& pair = options_.candidates[tensor.kind];
      freed[static_cast<size_t>(tensor.group)] +=
          static_cast<double>(tensor.elements) * (element_bits(pair.high) - element_bits(pair.low));
    }
    int best = -1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int group = static_cast<int>(i);
      if (std::find(low.begin(), low.end(), group) != low.end()) continue;
      const auto rank = [&](size_t g) { return std::pair(freed[g], sizes[g]); };
      if (best < 0 || rank(i) > rank(static_cast<size_t>(best))) best = group;
    }
    return best;
  }

  // What was demoted early may be needless by the end: the first ones are tried high again.
  void keep_needed(std::vector<int>& low, const auto& with) const {
    for (size_t i = 0; i < low.size();) {
      std::vector<int> without = low;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      if (options_.peak(with(without)).bytes <= bytes_) {
        low = std::move(without);
      } else {
        ++i;
      }
    }
  }

  const size_t bytes_;
  const PolicyOptions options_;
};

}  // namespace

constinit const PolicyInfo peak_policy = {
    "peak", "peak:BYTES", "peak:1GB", [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
      const std::string_view word = request.needed("a number of bytes");
      const std::optional<int64_t> bytes = parse_bytes(word);
      if (!bytes || *bytes < 1)
        request.refuse("BYTES must be above 0, such as 500000 or 64MB, got '{}'", word);
      return std::make_unique<PeakPolicy>(*bytes, request.options);
    }};

}  // namespace ulp
