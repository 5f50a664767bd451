#include "ulp/precision/policy.h"

#include <algorithm>
#include <array>
#include <vector>

#include "ulp/base/text.h"
#include "ulp/precision/policies.h"

namespace ulp {

std::string policy_forms() {
  std::vector<std::string_view> forms;
  for (const PolicyInfo& row : all_policies()) forms.push_back(row.form);
  return fmt::format("{} (R from 0 to 1)", fmt::join(forms, ", "));
}

std::vector<std::string_view> policy_examples() {
  std::vector<std::string_view> texts;
  for (const PolicyInfo& row : all_policies()) {
    if (!row.example.empty()) texts.push_back(row.example);
  }
  return texts;
}

bool has_own_formats(std::string_view policy) {
  const auto rows = all_policies();
  return std::any_of(rows.begin(), rows.end(), [name = policy.substr(0, policy.find(':'))](const auto& row) {
    return row.name == name && row.own_formats;
  });
}

std::unique_ptr<Policy> parse_policy(std::string_view text, const PolicyOptions& options) {
  const size_t colon = text.find(':');
  PolicyRequest request{text, {}, options};
  if (colon != text.npos) request.argument = text.substr(colon + 1);
  for (const PolicyInfo& row : all_policies()) {
    if (row.name != text.substr(0, colon)) continue;
    if (request.argument && !row.takes()) request.refuse("nothing follows {}", row.name);
    return row.make(request);
  }
  std::vector<std::string_view> known;
  for (const PolicyInfo& row : all_policies()) known.push_back(row.name);
  fail("precision", "unknown policy '{}'; {}forms: {}", text, nearest_hint(text.substr(0, colon), known),
       policy_forms());
}

}  // namespace ulp
