// The list of policies, and what they share. Private to the folder.
#pragma once

#include <array>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/precision/policy.h"

namespace ulp {

// What stands in the text of a policy after its name.
struct PolicyRequest {
  std::string_view text;
  std::optional<std::string_view> argument;  // after the first colon
  const PolicyOptions& options;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> why, Args&&... args) const {
    fail("precision", "policy '{}': {}; forms: {}", text, fmt::format(why, std::forward<Args>(args)...),
         policy_forms());
  }

  std::string_view needed(std::string_view what) const {
    if (!argument || argument->empty()) refuse("it needs {}", what);
    return *argument;
  }

  template <typename T>
  std::optional<T> number(std::string_view word) const {
    T value{};
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || rest != word.data() + word.size()) return {};
    return value;
  }

  double ratio(std::string_view word) const {
    const std::optional<double> value = number<double>(word);
    if (!value || !(*value >= 0 && *value <= 1)) refuse("R must be a number from 0 to 1, got '{}'", word);
    return *value;
  }
};

struct PolicyInfo {
  std::string_view name, form;  // the form as messages show it
  std::string_view example;     // a text of the form; "" where that needs a file
  std::unique_ptr<Policy> (*make)(const PolicyRequest& request);
  bool own_formats = false;  // candidates have no say in it

  bool takes() const { return form != name; }  // something after a colon
};

// Each is defined in a source of this folder, as by_peak.cc.
extern const PolicyInfo fp32_policy, uniform_policy, op_policy, op_out_policy, size_policy, size_inc_policy,
    random_policy, amp_policy, fpu16_policy, list_policy, sensitivity_policy, peak_policy, products_policy,
    s2fp8_policy, fp8_policy;

// In the order of help and messages.
inline auto all_policies() {
  return std::array{fp32_policy,     uniform_policy, op_policy,   op_out_policy,      size_policy,
                    size_inc_policy, random_policy,  amp_policy,  products_policy,    s2fp8_policy,
                    fp8_policy,      fpu16_policy,   list_policy, sensitivity_policy, peak_policy};
}

// Names of the tensors that the first and the last matrix product read and write, with gradients,
// and of inputs.
std::set<std::string> end_tensors(const Graph& graph);

// The counted tensors that `low` wants, and that have a low format, low; the others high. Ends are
// kept where the options say so.
Assignment assign_low(const Graph& graph, std::span<const CountedTensor> tensors,
                      const PolicyOptions& options, const std::function<bool(const CountedTensor&)>& low);

}  // namespace ulp
