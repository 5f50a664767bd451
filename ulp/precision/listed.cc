// list:FILE. The file is JSON as `ulp plan --save` writes it: an object with "tensors", from the
// name of each counted tensor to its format, and "high", from those that are low to what promotion
// gives them; where that is missing, the candidates say which are low. What stands beside it
// (model, width, input, classes) is read for messages alone.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/precision/json_file.h"
#include "ulp/precision/policies.h"

namespace ulp {
namespace {

class ListedPolicy : public Policy {
 public:
  ListedPolicy(const std::string& path, const PolicyOptions& options) : path_(path), options_(options) {
    const Json file = read_json_file("assignment file", path);
    if (!file.is_object() || !file.contains("tensors") || !file["tensors"].is_object()) {
      fail("precision",
           "assignment file '{}' must be an object with \"tensors\": {{name: format, ...}}, as ulp plan "
           "--save "
           "writes it",
           path);
    }
    about_ = described(network_of(file));
    storage_ = formats(file["tensors"]);
    if (file.contains("high")) high_ = formats(file["high"]);
    const std::map<std::string, Storage> none;
    for (const auto& [name, high] : high_ ? *high_ : none) {
      const auto low = storage_.find(name);
      if (low == storage_.end()) {
        fail("precision", "assignment file '{}' has {} in \"high\" and not in \"tensors\"", path,
             quoted(name));
      }
      if (element_bits(low->second) > element_bits(high)) {
        fail("precision", "assignment file '{}': {} is {} and would be promoted to {}, which is narrower",
             path, quoted(name), storage_name(low->second), storage_name(high));
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
      assignment.storage.emplace(tensor.name, storage);
      if (high_) {
        const auto high = high_->find(tensor.name);
        if (high != high_->end()) assignment.high.insert(*high);
      } else if (const Storage& high = options_.candidates[tensor.kind].high;
                 element_bits(storage) < element_bits(high)) {
        assignment.high.emplace(tensor.name, high);
      }
      if (ends.contains(tensor.name)) assignment.promote(tensor.name);
    }
    return assignment;
  }

 private:
  std::map<std::string, Storage> formats(const Json& object) const {
    if (!object.is_object()) {
      fail("precision", "assignment file '{}': \"high\" must be an object like \"tensors\"", path_);
    }
    std::map<std::string, Storage> made;
    for (const auto& [name, format] : object.items()) {
      if (!format.is_string()) {
        fail("precision", "assignment file '{}': the format of {} must be a string, such as \"bf16\"", path_,
             quoted(name));
      }
      try {
        made.emplace(name, parse_storage(format.get_ref<const std::string&>()));
      } catch (const Error& error) {
        fail("precision", "assignment file '{}', tensor {}: {}", path_, quoted(name), error.what());
      }
    }
    return made;
  }

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
  std::optional<std::map<std::string, Storage>> high_;
};

}  // namespace

constinit const PolicyInfo list_policy = {
    "list", "list:FILE", "", [](const PolicyRequest& request) -> std::unique_ptr<Policy> {
      return std::make_unique<ListedPolicy>(std::string(request.needed("a file")), request.options);
    }};

}  // namespace ulp
