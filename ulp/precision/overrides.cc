#include "ulp/precision/overrides.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

constexpr std::string_view kForm = "NAME=FORMAT, such as conv1.out=bf16 or layer1.*=fp(6,9,0)";

void check_star(std::string_view name, std::string_view word) {
  const size_t star = name.find('*');
  if (star == name.npos) return;
  if ((star == 0 || star + 1 == name.size()) && name.find('*', star + 1) == name.npos) return;
  fail("precision", "in '{}' the '*' must be the first or the last of the name, where it stands for anything",
       shown_text(word));
}

FormatOverride parse_one(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == word.npos) fail("precision", "'{}' must be {}", shown_text(word), kForm);
  const std::string_view name = word.substr(0, equals), format = word.substr(equals + 1);
  if (name.empty()) fail("precision", "'{}' names no tensor; it must be {}", shown_text(word), kForm);
  if (format.empty()) fail("precision", "'{}' names no format; it must be {}", shown_text(word), kForm);
  check_star(name, word);
  try {
    return {std::string(name), parse_storage(format)};
  } catch (const Error& error) {
    fail("precision", "'{}': {}", shown_text(word), error.message());
  }
}

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  return pattern == name;
}

// The tensors that may have been meant, nearest first. Of a pattern only as much of each name as it
// has itself is looked at.
std::vector<std::string> nearest(std::string_view pattern, std::span<const CountedTensor> tensors) {
  constexpr size_t kShown = 3;
  const bool open = pattern.ends_with('*');
  if (open) pattern.remove_suffix(1);
  std::vector<std::pair<size_t, std::string>> near;
  for (const CountedTensor& tensor : tensors) {
    const std::string_view name = tensor.name;
    near.emplace_back(edit_distance(pattern, open ? name.substr(0, pattern.size()) : name), tensor.name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kShown, near.size()); ++i) names.push_back(near[i].second);
  return names;
}

}  // namespace

std::vector<FormatOverride> parse_overrides(std::string_view text) {
  std::vector<FormatOverride> overrides;
  for (size_t begin = text.find_first_not_of(' '); begin < text.size();
       begin = text.find_first_not_of(' ', begin)) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    overrides.push_back(parse_one(text.substr(begin, end - begin)));
    begin = end;
  }
  return overrides;
}

std::vector<std::string> parse_names(std::string_view text) {
  std::vector<std::string> names;
  for (size_t begin = text.find_first_not_of(' '); begin < text.size();
       begin = text.find_first_not_of(' ', begin)) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    check_star(name, name);
    names.emplace_back(name);
    begin = end;
  }
  return names;
}

std::vector<size_t> tensors_named(std::string_view name, std::span<const CountedTensor> tensors) {
  std::vector<size_t> found;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (matches(name, tensors[i].name)) found.push_back(i);
  }
  if (found.empty()) {
    fail("precision", "no tensor is named '{}'; the nearest are {}", shown_text(name),
         fmt::join(nearest(name, tensors), ", "));
  }
  return found;
}

void apply_overrides(std::span<const FormatOverride> overrides, std::span<const CountedTensor> tensors,
                     const Candidates& candidates, Assignment& assignment) {
  for (const FormatOverride& override : overrides) {
    for (const size_t i : tensors_named(override.name, tensors)) {
      const CountedTensor& tensor = tensors[i];
      const Storage& high = candidates[tensor.kind].high;
      assignment.storage.insert_or_assign(tensor.name, override.storage);
      assignment.high.erase(tensor.name);
      if (element_bits(override.storage) < element_bits(high)) assignment.high.emplace(tensor.name, high);
    }
  }
}

}  // namespace ulp
