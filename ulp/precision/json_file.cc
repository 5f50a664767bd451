#include "ulp/precision/json_file.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "ulp/base/error.h"

namespace ulp {
namespace {

std::string read(std::string_view what, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail("precision", "{} '{}': there is none", what, path);
  // A pipe or a device could hang.
  if (!std::filesystem::is_regular_file(path, error)) {
    fail("precision", "{} '{}' is not a regular file", what, path);
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kJsonBytes) {
    fail("precision", "{} '{}' has {} bytes: at most {} are read", what, path, size, kJsonBytes);
  }
  std::string text(error ? 0 : size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (error || !file) fail("precision", "{} '{}' cannot be read", what, path);
  return text;
}

}  // namespace

std::string quoted(const std::string& text) { return Json(text).dump(); }

Json read_json_file(std::string_view what, const std::string& path) {
  const std::string text = read(what, path);
  try {
    return parse_json(text);
  } catch (const Error& error) {
    fail("precision", "{} '{}' {}", what, path, error.message());
  }
}

std::vector<std::pair<std::string, std::string>> network_of(const Json& file) {
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
