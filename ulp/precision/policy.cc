#include "ulp/precision/policy.h"

#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

struct AllFp32 : Policy {
  Assignment assign(const Graph&) const override { return {}; }
};

struct PolicyInfo {
  std::string_view form;  // as the list of known ones shows it
  // Null where the text is not one of this row's; an Error where it is one and cannot be followed.
  std::unique_ptr<Policy> (*parse)(std::string_view text);
};

constexpr PolicyInfo kPolicies[] = {
    {"fp32",
     [](std::string_view text) {
       return text == "fp32" ? std::make_unique<AllFp32>() : std::unique_ptr<Policy>();
     }},
};

}  // namespace

std::unique_ptr<Policy> parse_policy(std::string_view text) {
  std::vector<std::string_view> known;
  for (const PolicyInfo& row : kPolicies) {
    if (std::unique_ptr<Policy> policy = row.parse(text)) return policy;
    known.push_back(row.form);
  }
  fail("precision", "unknown policy '{}': known are {}", text, fmt::join(known, ", "));
}

}  // namespace ulp
