#include "ulp/optim/rule.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/numeric/nearest.h"

namespace ulp {
namespace {

using Kind = UpdateRule::Kind;

struct RuleName {
  std::string_view name;
  Kind kind;
};
constexpr RuleName kRules[] = {{"master", Kind::master},
                               {"plain", Kind::plain},
                               {"stochastic", Kind::stochastic},
                               {"kahan", Kind::kahan},
                               {"stochastic+kahan", Kind::stochastic_kahan}};
constexpr std::string_view kForms =
    "master, plain, stochastic, kahan, stochastic+kahan, extra:N, extra:N:sr (N more bits, such as extra:8)";

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

UpdateRule parse_update_rule(std::string_view text) {
  for (const RuleName& row : kRules) {
    if (row.name == text) return {row.kind, 0};
  }
  if (text.starts_with("extra:")) {
    std::string_view rest = text.substr(6);
    UpdateRule rule{Kind::extra, 0};
    if (rest.ends_with(":sr")) {
      rule.kind = Kind::extra_stochastic;
      rest.remove_suffix(3);
    }
    const std::optional<int> extra = number(rest);
    if (extra && *extra >= 0 && *extra <= 16) return {rule.kind, *extra};
    if (extra) fail("update", "'{}' asks for {} extra bits; there can be 0 to 16", text, *extra);
  }
  fail("update", "unknown update rule '{}'; known: {}", text, kForms);
}

std::string update_rule_text(const UpdateRule& rule) {
  for (const RuleName& row : kRules) {
    if (row.kind == rule.kind) return std::string(row.name);
  }
  return fmt::format("extra:{}{}", rule.extra, rule.kind == Kind::extra_stochastic ? ":sr" : "");
}

Storage stored_weight(const UpdateRule& rule, const Storage& weight) {
  const std::string text = update_rule_text(rule);
  const Plain* plain = std::get_if<Plain>(&weight);
  if (plain == nullptr) {
    fail("update", "weights cannot be stored as {}: name a plain format, such as bf16", storage_name(weight));
  }
  const bool wide = plain->format.bits() > 16;
  if (rule.kind == Kind::master) {
    if (plain->format != parse_format("fp32")) {
      fail("update",
           "the rule master keeps weights in fp32, not in {}: leave the format out, or choose another rule "
           "(plain, stochastic, kahan, extra:8 ...)",
           storage_name(weight));
    }
    return weight;
  }
  if (wide && rule.kind != Kind::plain) {
    fail("update",
         "the rule {} is for weights of at most 16 bits, not for {}: choose a narrower format, such as bf16, "
         "or the rule "
         "master",
         text, storage_name(weight));
  }
  if (rule.compensated()) make_nearest(plain->format);
  if (rule.kind == Kind::extra || rule.kind == Kind::extra_stochastic) {
    return make_split(plain->format, rule.extra, rule.kind == Kind::extra_stochastic);
  }
  return weight;
}

}  // namespace ulp
