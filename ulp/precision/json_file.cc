#include "ulp/precision/json_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

using json = nlohmann::ordered_json;

std::string read(std::string_view what, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail("precision", "{} '{}': there is none", what, path);
  // A pipe or a device could hang.
  if (!std::filesystem::is_regular_file(path, error)) {
    fail("precision", "{} '{}' is not a regular file", what, path);
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || file.bad()) fail("precision", "{} '{}' cannot be read", what, path);
  return text;
}

}  // namespace

std::string quoted(const std::string& text) { return json(text).dump(); }

json read_json_file(std::string_view what, const std::string& path) {
  std::vector<std::set<std::string>> open;
  const auto look = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (!open.back().insert(name).second) {
        fail("precision", "{} '{}' has {} twice", what, path, quoted(name));
      }
    }
    return true;
  };
  const std::string text = read(what, path);
  try {
    return json::parse(text, look);
  } catch (const json::parse_error& error) {
    fail("precision", "{} '{}' is no JSON: it goes wrong at byte {}", what, path, error.byte);
  }
}

std::vector<std::pair<std::string, std::string>> network_of(const json& file) {
  std::vector<std::pair<std::string, std::string>> network;
  for (const auto& [name, value] : file.items()) {
    if (!value.is_structured() && name != "candidates" && name != "policy")
      network.emplace_back(name, value.dump());
  }
  return network;
}

std::string described(const std::vector<std::pair<std::string, std::string>>& network) {
  std::string text;
  for (const auto& [name, value] : network)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text.empty() ? "of an unknown model" : text;
}

}  // namespace ulp
