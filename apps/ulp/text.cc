#include "apps/ulp/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

namespace ulp {

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json json_number(const std::optional<double>& value) { return value ? json_number(*value) : Json(); }

std::string json_text(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

std::string number_text(float value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted + "'";
}

std::string printable(std::string name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<uint8_t>(name[i]);
    if (byte < 32 || byte == 127) name[i] = '?';
    if (byte == 0xc2 && i + 1 < name.size() && static_cast<uint8_t>(name[i + 1]) / 32 == 4) {
      name.replace(i, 2, "?");
    }
  }
  return name;
}

}  // namespace ulp
