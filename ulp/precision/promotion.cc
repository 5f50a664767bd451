#include "ulp/precision/promotion.h"

#include <charconv>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

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
  const std::string_view name = policy.substr(0, policy.find(':'));
  if (name == "fp32" || name == "amp" || name == "fpu16") return {};
  return 0.01;
}

std::vector<Promotion> overflowing(const Graph& graph, std::span<const EncodeStats> stats,
                                   std::span<const uint64_t> elements, double threshold,
                                   const Assignment& assignment) {
  std::vector<Promotion> found;
  for (const auto& [name, high] : assignment.high) {
    const TensorId id = graph.find(name);
    if (!id) continue;
    const Kind kind = graph[id].kind;
    if (kind != Kind::activation && kind != Kind::weight) continue;
    const auto at = static_cast<size_t>(id.index);
    if (stats[at].overflow == 0) continue;
    const double ratio = static_cast<double>(stats[at].overflow) / static_cast<double>(elements[at]);
    if (ratio > threshold) found.push_back({name, assignment.storage_of(name), high, ratio});
  }
  return found;
}

}  // namespace ulp
