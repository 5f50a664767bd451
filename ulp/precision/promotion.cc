#include "ulp/precision/promotion.h"

#include <algorithm>
#include <charconv>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/precision/policy.h"

namespace ulp {

std::optional<double> parse_promotion(std::string_view text) {
  if (text == "off") return {};
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= 0 && value <= 1)) {
    fail(
        "precision",
        "'{}' is no threshold of promotion: write the share of a tensor's elements that may overflow, from 0 "
        "to 1 "
        "(0.01 as a rule), or off",
        shown_text(text));
  }
  return value;
}

std::optional<double> default_promotion(std::string_view policy) {
  if (has_own_formats(policy)) return {};
  return 0.01;
}

std::vector<Promotion> overflowing(const Graph& graph, std::span<const EncodeStats> stats,
                                   std::span<const uint64_t> elements, double threshold,
                                   const Assignment& assignment) {
  // After every step of a run: few tensors overflow, so that names are looked up of those alone.
  std::vector<Promotion> found;
  for (size_t i = 0; i < stats.size(); ++i) {
    if (stats[i].overflow == 0) continue;
    const double ratio = static_cast<double>(stats[i].overflow) / static_cast<double>(elements[i]);
    const TensorInfo& tensor = graph.tensors()[i];
    if (!(ratio > threshold) || (tensor.kind != Kind::activation && tensor.kind != Kind::weight)) continue;
    const auto high = assignment.high.find(tensor.name);
    if (high == assignment.high.end() || graph.find(tensor.name).index != static_cast<int32_t>(i)) continue;
    found.push_back({tensor.name, assignment.storage_of(tensor.name), high->second, ratio});
  }
  std::sort(found.begin(), found.end(),
            [](const Promotion& a, const Promotion& b) { return a.tensor < b.tensor; });
  return found;
}

}  // namespace ulp
