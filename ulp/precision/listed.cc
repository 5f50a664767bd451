// list:FILE. The file is JSON as `ulp plan --save` writes it: an object with "tensors", from the name of each
// counted tensor to its format. What stands beside it (model, width, input, classes) is read for messages
// alone.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

using nlohmann::json;

std::string read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail("precision", "assignment file '{}': there is none", path);
  // A pipe or a device could hang.
  if (!std::filesystem::is_regular_file(path, error)) {
    fail("precision", "assignment file '{}' is not a regular file", path);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || file.bad()) fail("precision", "assignment file '{}' cannot be read", path);
  return text;
}

// On one line, whatever it is.
std::string quoted(const std::string& text) { return json(text).dump(); }

// JSON allows a name twice in an object and parsers keep one of them; here it would be unclear which format
// is meant.
json parse(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> open;
  const auto look = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (!open.back().insert(name).second) {
        fail("precision", "assignment file '{}' has {} twice", path, quoted(name));
      }
    }
    return true;
  };
  try {
    return json::parse(text, look);
  } catch (const json::parse_error& error) {
    fail("precision", "assignment file '{}' is no JSON: it goes wrong at byte {}", path, error.byte);
  }
}

// `model "squeezenet", width 0.5`, as far as the file says.
std::string described(const json& file) {
  std::vector<std::string> parts;
  for (const char* key : {"model", "width", "input", "classes"}) {
    if (!file.contains(key) || file[key].is_structured()) continue;
    parts.push_back(fmt::format("{} {}", key, file[key].dump()));
  }
  return parts.empty() ? "of an unknown model" : fmt::format("{}", fmt::join(parts, ", "));
}

class ListedPolicy : public Policy {
 public:
  ListedPolicy(const std::string& path, const PolicyOptions& options) : path_(path), options_(options) {
    const json file = parse(path, read(path));
    if (!file.is_object() || !file.contains("tensors") || !file["tensors"].is_object()) {
      fail("precision",
           "assignment file '{}' must be an object with \"tensors\": {{name: format, ...}}, as ulp plan "
           "--save "
           "writes it",
           path);
    }
    about_ = described(file);
    for (const auto& [name, format] : file["tensors"].items()) {
      if (!format.is_string()) {
        fail("precision", "assignment file '{}': the format of {} must be a string, such as \"bf16\"", path,
             quoted(name));
      }
      try {
        storage_.emplace(name, parse_storage(format.get_ref<const std::string&>()));
      } catch (const Error& error) {
        fail("precision", "assignment file '{}', tensor {}: {}", path, quoted(name), error.what());
      }
    }
  }

  Assignment assign(const Graph& graph) const override {
    const std::vector<CountedTensor> tensors = counted_tensors(graph);
    check(tensors);
    const std::set<std::string> ends =
        options_.keep_first_last ? end_tensors(graph) : std::set<std::string>();
    Assignment assignment;
    for (const CountedTensor& tensor : tensors) {
      const Storage& storage = storage_.at(tensor.name);
      const Storage& high = options_.candidates[tensor.kind].high;
      assignment.storage.emplace(tensor.name, storage);
      if (element_bits(storage) < element_bits(high)) assignment.high.emplace(tensor.name, high);
      if (ends.contains(tensor.name)) assignment.promote(tensor.name);
    }
    return assignment;
  }

 private:
  void check(const std::vector<CountedTensor>& tensors) const {
    std::set<std::string> names;
    std::vector<std::string> lacking, strange;
    for (const CountedTensor& tensor : tensors) {
      names.insert(tensor.name);
      if (!storage_.contains(tensor.name)) lacking.push_back(quoted(tensor.name));
    }
    for (const auto& [name, storage] : storage_) {
      if (!names.contains(name)) strange.push_back(quoted(name));
    }
    if (!strange.empty()) refuse("names tensors that this model does not have, such as", strange);
    if (!lacking.empty()) refuse("does not name all tensors of this model, such as", lacking);
  }

  [[noreturn]] void refuse(std::string_view what, const std::vector<std::string>& names) const {
    constexpr size_t kShown = 3;
    const size_t shown = std::min(kShown, names.size());
    fail("precision", "assignment file '{}' ({}) {} {}{}", path_, about_, what,
         fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
         names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
  }

  const std::string path_;
  const PolicyOptions options_;
  std::string about_;
  std::map<std::string, Storage> storage_;
};

}  // namespace

std::unique_ptr<Policy> listed_policy(const std::string& path, const PolicyOptions& options) {
  return std::make_unique<ListedPolicy>(path, options);
}

}  // namespace ulp
