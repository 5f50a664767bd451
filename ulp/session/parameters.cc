#include "ulp/session/parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/ops/norm.h"

namespace ulp {
namespace {

enum class Role : uint8_t { matrix, bias, norm };

// By the operator that reads it first: an operator with parameters takes its input, then its
// matrix, then its bias.
Role role_of(const Graph& graph, TensorId weight) {
  for (const Node& node : graph.nodes()) {
    const auto place = std::find(node.in.begin(), node.in.end(), weight);
    if (place == node.in.end() || node.phase != Phase::forward) continue;
    if (node.op == &kBatchNorm || node.op == &kLayerNorm) return Role::norm;
    return place - node.in.begin() == 2 ? Role::bias : Role::matrix;
  }
  return Role::matrix;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

std::optional<size_t> count(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// None if the selector is not about size.
std::optional<size_t> size_limit(std::string_view selector) {
  if (selector.starts_with(">=")) return count(selector.substr(2));
  if (selector.starts_with('<')) return count(selector.substr(1));
  return {};
}

void check_selector(std::string_view group, std::string_view selector) {
  const bool sized = selector.starts_with('<') || selector.starts_with('>');
  const size_t star = selector.find('*');
  const bool inner = star != selector.npos && ((star != 0 && star + 1 != selector.size()) ||
                                               selector.find('*', star + 1) != selector.npos);
  if (selector.empty() || inner || (sized && !size_limit(selector))) {
    fail("groups",
         "'{}': '{}' selects nothing; write norm, bias, matrix, <COUNT, >=COUNT or a weight's name, in "
         "which * may stand at one end",
         group, selector);
  }
}

bool selects(std::string_view selector, const TensorInfo& weight, Role role) {
  if (const std::optional<size_t> limit = size_limit(selector)) {
    return selector.front() == '<' ? weight.elements() < *limit : weight.elements() >= *limit;
  }
  if (selector == "norm") return role == Role::norm;
  if (selector == "bias") return role == Role::bias;
  if (selector == "matrix") return role == Role::matrix;
  if (selector.ends_with('*')) return weight.name.starts_with(selector.substr(0, selector.size() - 1));
  if (selector.starts_with('*')) return weight.name.ends_with(selector.substr(1));
  return weight.name == selector;
}

void set_key(ParameterGroup& group, std::string_view text, std::string_view key, std::string_view value) {
  if (key == "lr" || key == "decay") {
    const std::optional<double> parsed = number(value);
    if (!parsed || *parsed < 0 || !std::isfinite(static_cast<float>(*parsed)))
      fail("groups", "'{}': {} must be a number from 0, got '{}'", text, key, value);
    (key == "lr" ? group.lr_factor : group.weight_decay) = *parsed;
  } else if (key == "update") {
    group.rule = parse_update_rule(value);
  } else if (key == "weight") {
    group.weight = parse_weight_format(value);
  } else if (key == "state") {
    group.state = parse_state_format(value);
  } else {
    fail("groups", "'{}': unknown key '{}'; known: lr, decay, update, weight, state", text, key);
  }
}

// Settings are separated by commas, except within the parentheses of a format.
ParameterGroup parse_group(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    fail("groups", "'{}' is no group of parameters; write SELECTOR:KEY=VALUE,..., such as norm:decay=0",
         text);
  }
  ParameterGroup group;
  group.selector = text.substr(0, colon);
  check_selector(text, group.selector);
  std::string_view rest = text.substr(colon + 1);
  if (rest.empty()) fail("groups", "'{}' sets nothing: write KEY=VALUE behind the colon", text);
  std::set<std::string_view> seen;
  while (!rest.empty()) {
    size_t end = 0;
    for (int depth = 0; end < rest.size() && (rest[end] != ',' || depth > 0); ++end) {
      depth += rest[end] == '(' ? 1 : rest[end] == ')' ? -1 : 0;
    }
    const std::string_view item = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    const size_t equal = item.find('=');
    if (equal == item.npos) fail("groups", "'{}': '{}' is no KEY=VALUE", text, item);
    const std::string_view key = item.substr(0, equal);
    if (!seen.insert(key).second) fail("groups", "'{}' sets {} twice", text, key);
    set_key(group, text, key, item.substr(equal + 1));
  }
  return group;
}

void check_state(const std::string& weight, const OptimizerConfig& optimizer, const StateFormat& state) {
  const Plain* squares = std::get_if<Plain>(&state.squares);
  if (!optimizer_traits(optimizer.kind).only_grows || (squares != nullptr && squares->format.bits() > 8))
    return;
  fail("update",
       "'{}': {}'s sum of squares only grows, by less and less, and cannot be kept in 8 bits ({}): "
       "choose fp32, "
       "bf16 or fp16, or another optimizer",
       weight, optimizer_name(optimizer.kind), state_format_text(state));
}

void set_rule(ParameterChoice& choice, const UpdateRule& rule) {
  choice.rule = rule;
  choice.update.compensated = rule.compensated();
  choice.update.stochastic = rule.stochastic();
}

ParameterChoice choose(const Graph& graph, TensorId id, const OptimizerConfig& optimizer,
                       const UpdateOptions& options, std::vector<bool>& used) {
  const Role role = role_of(graph, id);
  ParameterChoice choice{{.optimizer = optimizer}, options.rule, options.weight, options.state};
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const ParameterGroup& group = options.groups[i];
    if (!selects(group.selector, graph[id], role)) continue;
    used[i] = true;
    if (group.lr_factor) choice.update.lr_factor = *group.lr_factor;
    if (group.weight_decay) choice.update.optimizer.weight_decay = *group.weight_decay;
    if (group.rule) choice.rule = *group.rule;
    if (group.weight) choice.weight = *group.weight;
    if (group.state) choice.state = *group.state;
    // A weight that a group moves to another rule needs no explicit format: master has fp32, the
    // others a narrow one.
    if (!group.rule || group.weight) continue;
    if (group.rule->kind == UpdateRule::Kind::master) {
      choice.weight = {};
    } else if (!choice.weight.assigned && is_fp32(choice.weight.format)) {
      choice.weight = {false, options.narrow};
    }
  }
  set_rule(choice, choice.rule);
  choice.update.state_stochastic = choice.state.stochastic;
  return choice;
}

// The formats that an assigned weight may have: now, and by promotion.
std::vector<Storage> operands(const std::string& name, const UpdateOptions& options,
                              const Assignment& assignment) {
  std::vector<Storage> all = {assignment.storage_of(name)};
  if (options.promotes) all.push_back(assignment.high_of(name));
  return all;
}

}  // namespace

StateFormat parse_state_format(std::string_view text) {
  if (text == "8bit:sr") fail("update", "8bit is rounded at random in any case: leave :sr out");
  if (text == "8bit") return {parse_storage("scaled(e4m3)"), parse_storage("scaled(e5m2,nonzero)"), true};
  StateFormat made;
  std::string_view name = text;
  if (name.ends_with(":sr")) {
    made.stochastic = true;
    name.remove_suffix(3);
  }
  made.first = made.squares = parse_storage(name);
  if (!std::holds_alternative<Plain>(made.first)) {
    fail(
        "update",
        "optimizer state cannot be stored as '{}'; known: fp32, bf16, fp16 or another plain format, with :sr "
        "behind it for stochastic rounding, and 8bit",
        text);
  }
  const FloatFormat& format = std::get<Plain>(made.first).format;
  if (format.emin() > -126) made.squares = parse_storage("bf16");
  if (made.stochastic && is_fp32(made.first))
    fail("update", "'{}': nothing is rounded in fp32; leave :sr out", text);
  return made;
}

std::string state_format_text(const StateFormat& format) {
  for (const char* usual : {"8bit", "fp16", "fp16:sr"}) {
    if (parse_state_format(usual) == format) return usual;
  }
  return storage_name(format.first) + (format.stochastic ? ":sr" : "");
}

WeightFormat parse_weight_format(std::string_view text) {
  if (text == "assigned") return {true, {}};
  Storage storage = parse_storage(text);
  if (!std::holds_alternative<Plain>(storage)) {
    fail("update",
         "weights cannot be stored as '{}': name a plain format, such as bf16, or assigned; extra bits come "
         "with "
         "--update extra:N",
         text);
  }
  return {false, std::move(storage)};
}

std::vector<ParameterGroup> parse_parameter_groups(std::string_view text) {
  std::vector<ParameterGroup> groups;
  while (!text.empty()) {
    const size_t begin = std::min(text.find_first_not_of(' '), text.size());
    text.remove_prefix(begin);
    if (text.empty()) break;
    const std::string_view item = text.substr(0, text.find(' '));
    groups.push_back(parse_group(item));
    text.remove_prefix(item.size());
  }
  return groups;
}

ParameterChoices choose_parameters(const Graph& graph, const OptimizerConfig& optimizer,
                                   const UpdateOptions& options) {
  ParameterChoices choices;
  std::vector<bool> used(options.groups.size());
  for (size_t i = 0; i < graph.tensor_count(); ++i) {
    const TensorId id{static_cast<int32_t>(i)};
    if (graph[id].kind != Kind::weight) continue;
    const std::string& name = graph[id].name;
    ParameterChoice choice = choose(graph, id, optimizer, options, used);
    choice.update.optimizer.check();
    check_state(name, optimizer, choice.state);
    choices.emplace(name, std::move(choice));
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) fail("groups", "no weight is selected by '{}'", options.groups[i].selector);
  }
  return choices;
}

void settle_assigned(ParameterChoices& choices, const UpdateOptions& options, const Assignment& assignment) {
  for (auto& [name, choice] : choices) {
    const std::vector<Storage> all = operands(name, options, assignment);
    const bool wide =
        std::all_of(all.begin(), all.end(), [](const Storage& storage) { return is_fp32(storage); });
    if (!choice.weight.assigned || !wide) continue;
    set_rule(choice, {});
    choice.weight = {};
  }
}

void check_stored(const ParameterChoices& choices, const UpdateOptions& options,
                  const Assignment& assignment) {
  for (const auto& [name, choice] : choices) {
    for (const Storage& operand : operands(name, options, assignment)) {
      try {
        stored_weight(choice.rule, choice.weight.of(operand));
      } catch (const Error& error) {
        fail("update", "'{}': {}", name, error.message());
      }
    }
  }
}

std::map<std::string, Storage> stored_formats(const Graph& graph, const ParameterChoices& choices,
                                              const UpdateOptions& options, const Assignment& assignment) {
  std::map<std::string, Storage> stored;
  for (const auto& [name, choice] : choices) {
    const Storage weight = choice.weight.of(assignment.storage_of(name));
    stored[name] = stored_weight(choice.rule, weight);
    for (const OptimizerState& state : optimizer_states(make_optimizer(choice.update.optimizer))) {
      stored[name + "." + std::string(state.name)] =
          state.squares ? choice.state.squares : choice.state.first;
    }
    if (choice.rule.compensated()) stored[name + ".compensation"] = weight;
  }
  for (const TensorInfo& tensor : graph.tensors()) {
    if (tensor.kind == Kind::statistic && options.arithmetic)
      stored[tensor.name] = Plain{*options.arithmetic};
  }
  return stored;
}

}  // namespace ulp
