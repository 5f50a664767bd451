#include "ulp/optim/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/numeric/nearest.h"

namespace ulp {
namespace {

using Kind = UpdateRule::Kind;

// A form with an N stands for a rule of each number; `shown` are those that tables show. `also` is
// another name that is taken.
struct RuleRow {
  Kind kind;
  std::string_view form, about = {};
  std::array<int, 3> shown = {};
  std::string_view also = {};

  bool takes() const { return form.find('N') != form.npos; }
};
constexpr RuleRow kRules[] = {
    {Kind::master, "master", " (fp32 weights)"},
    {Kind::plain, "plain", " (nearest rounding)", {}, "nearest"},
    {Kind::stochastic, "stochastic"},
    {Kind::kahan, "kahan"},
    {Kind::stochastic_kahan, "stochastic+kahan"},
    {Kind::extra, "extra:N", " (N more bits beside the weight, such as extra:8)", {4, 8, 16}},
    {Kind::extra_stochastic, "extra:N:sr", "", {8}}};

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

UpdateRule parse_update_rule(std::string_view text) {
  for (const RuleRow& row : kRules) {
    const size_t n = row.form.find('N');
    if (!row.takes()) {
      if (row.form == text || (!row.also.empty() && row.also == text)) return {row.kind, 0};
      continue;
    }
    const std::string_view before = row.form.substr(0, n), after = row.form.substr(n + 1);
    if (!text.starts_with(before) || !text.substr(n).ends_with(after)) continue;
    const std::optional<int> extra = number(text.substr(n, text.size() - n - after.size()));
    if (extra && *extra >= 0 && *extra <= 16) return {row.kind, *extra};
    if (extra) fail("update", "'{}' asks for {} extra bits; there can be 0 to 16", text, *extra);
  }
  std::vector<std::string_view> known;
  for (const RuleRow& row : kRules) known.push_back(row.form);
  fail("update", "unknown update rule '{}'; {}known: {}", text, nearest_hint(text, known),
       update_rule_forms());
}

std::string update_rule_text(const UpdateRule& rule) {
  const RuleRow* row = std::find_if(std::begin(kRules), std::end(kRules),
                                    [&](const RuleRow& one) { return one.kind == rule.kind; });
  std::string text(row->form);
  if (row->takes()) text.replace(text.find('N'), 1, std::to_string(rule.extra));
  return text;
}

std::string update_rule_forms() {
  std::string text;
  for (const RuleRow& row : kRules)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", row.form, row.about);
  return text;
}

std::vector<UpdateRule> update_rules() {
  std::vector<UpdateRule> rules;
  for (const RuleRow& row : kRules) {
    if (!row.takes()) rules.push_back({row.kind, 0});
    for (const int extra : row.shown) {
      if (extra > 0) rules.push_back({row.kind, extra});
    }
  }
  return rules;
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
