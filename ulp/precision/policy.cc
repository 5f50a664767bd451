#include "ulp/precision/policy.h"

#include <charconv>
#include <optional>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"
#include "ulp/numeric/nearest.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

struct AllFp32 : Policy {
  Assignment assign(const Graph&) const override { return {}; }
};

// Nothing is low: there is no higher format to go to.
class OneFormat : public Policy {
 public:
  explicit OneFormat(const FloatFormat& format) : format_(format) {}
  Assignment assign(const Graph& graph) const override {
    Assignment assignment;
    for (const CountedTensor& tensor : counted_tensors(graph))
      assignment.storage.emplace(tensor.name, Plain{format_});
    return assignment;
  }

 private:
  const FloatFormat format_;
};

// What stands in the text of a policy after its name.
struct Request {
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

using Made = std::unique_ptr<Policy>;

Made by_size(GroupOrder order, const Request& request) {
  return group_policy(order, request.ratio(request.needed("a ratio R")), 0, request.options);
}

Made by_chance(const Request& request) {
  const std::string_view words = request.needed("a ratio R");
  const size_t colon = words.find(':');
  uint64_t seed = 0;
  if (colon != words.npos) {
    const std::string_view word = words.substr(colon + 1);
    const std::optional<uint64_t> value = request.number<uint64_t>(word);
    if (!value) request.refuse("SEED must be a whole number from 0 to 2^64 - 1, got '{}'", word);
    seed = *value;
  }
  return group_policy(GroupOrder::random, request.ratio(words.substr(0, colon)), seed, request.options);
}

Made by_error(const Request& request) {
  const std::string_view words = request.needed("a ratio R");
  const size_t colon = words.find(':');
  const double ratio = request.ratio(words.substr(0, colon));
  const std::string_view path = colon == words.npos ? std::string_view() : words.substr(colon + 1);
  if (colon != words.npos && path.empty())
    request.refuse("it needs a file after the second colon, or no colon");
  return error_policy(ratio, std::string(path), request.options);
}

Made by_peak(const Request& request) {
  const std::string_view word = request.needed("a number of bytes");
  const std::optional<int64_t> bytes = parse_bytes(word);
  if (!bytes || *bytes < 1) request.refuse("BYTES must be above 0, such as 500000 or 64MB, got '{}'", word);
  return peak_policy(*bytes, request.options);
}

Made amp(const Request& request) {
  const std::string_view name = request.needed("a format");
  if (name != "bf16" && name != "fp16") request.refuse("its format must be bf16 or fp16, got '{}'", name);
  return amp_policy(parse_format(name), request.options);
}

struct PolicyInfo {
  std::string_view name, form;  // the form as messages show it
  bool takes;                   // something after a colon
  Made (*make)(const Request& request);
};

constexpr PolicyInfo kPolicies[] = {
    {"fp32", "fp32", false, [](const Request&) -> Made { return std::make_unique<AllFp32>(); }},
    {"uniform", "uniform", false,
     [](const Request& request) { return group_policy(GroupOrder::number, 1, 0, request.options); }},
    {"op", "op", false, [](const Request& request) { return operator_policy(false, request.options); }},
    {"op-out", "op-out", false,
     [](const Request& request) { return operator_policy(true, request.options); }},
    {"size", "size:R", true,
     [](const Request& request) { return by_size(GroupOrder::largest_first, request); }},
    {"size-inc", "size-inc:R", true,
     [](const Request& request) { return by_size(GroupOrder::smallest_first, request); }},
    {"random", "random:R[:SEED]", true, by_chance},
    {"amp", "amp:bf16, amp:fp16", true, amp},
    {"fpu16", "fpu16:FORMAT", true,
     [](const Request& request) -> Made {
       request.needed("a format");
       return std::make_unique<OneFormat>(*fpu_format(request.text));
     }},
    {"list", "list:FILE", true,
     [](const Request& request) {
       return listed_policy(std::string(request.needed("a file")), request.options);
     }},
    {"sensitivity", "sensitivity:R[:FILE]", true, by_error},
    {"peak", "peak:BYTES", true, by_peak},
};

}  // namespace

std::optional<FloatFormat> fpu_format(std::string_view policy) {
  constexpr std::string_view kName = "fpu16:";
  if (!policy.starts_with(kName)) return {};
  const FloatFormat format = parse_format(policy.substr(kName.size()));
  if (format.bits() > 16) {
    fail("precision", "policy '{}': its format must have at most 16 bits, such as bf16, fp16 or e8m5",
         policy);
  }
  make_nearest(format);
  return format;
}

std::string policy_forms() {
  std::vector<std::string_view> forms;
  for (const PolicyInfo& row : kPolicies) forms.push_back(row.form);
  return fmt::format("{} (R from 0 to 1)", fmt::join(forms, ", "));
}

std::unique_ptr<Policy> parse_policy(std::string_view text, const PolicyOptions& options) {
  const size_t colon = text.find(':');
  Request request{text, {}, options};
  if (colon != text.npos) request.argument = text.substr(colon + 1);
  for (const PolicyInfo& row : kPolicies) {
    if (row.name != text.substr(0, colon)) continue;
    if (request.argument && !row.takes) request.refuse("nothing follows {}", row.name);
    return row.make(request);
  }
  fail("precision", "unknown policy '{}'; forms: {}", text, policy_forms());
}

}  // namespace ulp
