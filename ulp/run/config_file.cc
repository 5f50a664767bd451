// The configuration as a TOML file.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/run/config.h"
#include "ulp/run/config_toml.h"

namespace ulp {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;  // no configuration; a device without an end
// Numbers with fewer digits are surely among TOML's, which end below 2^63.
constexpr size_t kTomlDigits = 19;
// Each is a table in a table, which the library takes apart by recursion.
constexpr size_t kMostDots = 32;

template <typename T>
bool holds(const ConfigField& field) {
  return std::holds_alternative<T RunConfig::*>(field.member);
}

std::string_view type_name(toml::node_type type) {
  switch (type) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

std::string_view wanted_type(const ConfigField& field) {
  if (field.is_switch()) return "true or false, without quotes";
  if (field.rule.bytes) return "a whole number or text such as \"64MB\"";
  if (holds<std::string>(field)) return field.rule.number ? "text in quotes or a number" : "text in quotes";
  if (holds<double>(field)) return "a number, without quotes";
  if (holds<std::optional<double>>(field)) return "a number, or \"auto\"";
  return "a whole number, without quotes";
}

// The value as ConfigField::set takes it, or nothing where the type is another.
std::optional<std::string> value_text(const toml::node& node, const ConfigField& field) {
  const bool text = holds<std::string>(field);
  if (const auto* value = node.as_string()) {
    // Seeds may be larger than TOML's numbers.
    const bool fits =
        text || field.rule.bytes || holds<uint64_t>(field) || holds<std::optional<double>>(field);
    return fits ? std::optional(value->get()) : std::nullopt;
  }
  if (const auto* value = node.as_boolean()) {
    return field.is_switch() ? std::optional(value->get() ? "true" : "false") : std::nullopt;
  }
  if (field.is_switch() || (text && !field.rule.number)) return {};
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) {
    const double x = value->get();
    // 1e3 is a whole number too. Up to 2^53 every one has its own double.
    if (std::abs(x) <= 0x1p53 && std::trunc(x) == x) return std::to_string(static_cast<int64_t>(x));
    return fmt::format("{}", x);
  }
  return {};
}

// Where a text in quotes ends that begins at `at`: behind the closing quotes, or where the line or
// the file ends without them.
size_t end_of_quotes(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string_view three = text.substr(at, 3);
  const bool lines = three.size() == 3 && three[1] == quote && three[2] == quote;
  const std::string_view closing = lines ? three : three.substr(0, 1);
  for (at += closing.size(); at < text.size(); ++at) {
    if (text.substr(at).starts_with(closing)) return at + closing.size();
    if (text[at] == '\n' && !lines) return at;
    if (text[at] == '\\' && quote == '"') ++at;
  }
  return text.size();
}

// Refuses what TOML has nowhere and the library's parser has no code for: outside of quotes and
// comments a letter beyond ASCII, and a dot that follows neither a name nor a digit. And a key with so
// many dots that the library would run out of stack.
void check_toml(std::string_view text, const std::string& path) {
  uint32_t line = 1;
  char before = 0;  // the last one that is no space
  size_t dots = 0;  // of this key, header or value
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const size_t end = end_of_quotes(text, at);
      line += static_cast<uint32_t>(std::count(text.begin() + static_cast<ptrdiff_t>(at),
                                               text.begin() + static_cast<ptrdiff_t>(end), '\n'));
      at = end;
      before = c;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (static_cast<unsigned char>(c) >= 0x80 && !(at < 3 && text.starts_with("\xef\xbb\xbf"))) {
      fail("config", "{}:{}: letters beyond ASCII must stand in quotes", path, line);
    }
    const bool joins = ('0' <= before && before <= '9') || ('a' <= before && before <= 'z') ||
                       ('A' <= before && before <= 'Z') || before == '_' || before == '-' || before == '"' ||
                       before == '\'';
    if (c == '.' && !joins) fail("config", "{}:{}: a dot must follow a name or a digit", path, line);
    if (std::string_view(",[]{}=\n").find(c) != std::string_view::npos) dots = 0;
    if (c == '.' && ++dots > kMostDots) {
      fail("config", "{}:{}: a key has more than {} dots; the name of an option has none", path, line,
           kMostDots);
    }
    line += c == '\n' ? 1 : 0;
    if (c != ' ' && c != '\t') before = c;
    ++at;
  }
}

struct Line {
  uint32_t number;
  ConfigSetting setting;
};

// A text in quotes. JSON's escapes are TOML's too; of what JSON lets stand, TOML forbids one letter.
std::string quoted(const ConfigField& field, const std::string& text) {
  std::string json;
  try {
    json = nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail("config", "{} is no UTF-8, which a configuration file must be; name it otherwise", field.name);
  }
  for (size_t at = 0; (at = json.find('\x7f', at)) != std::string::npos;) json.replace(at, 1, "\\u007f");
  return json;
}

std::string toml_value(const ConfigField& field, const RunConfig& config) {
  const std::string text = field.get(config);
  const bool automatic = holds<std::optional<double>>(field) && text == "auto";
  const bool large = holds<uint64_t>(field) && text.size() >= kTomlDigits;
  return holds<std::string>(field) || field.rule.bytes || automatic || large ? quoted(field, text) : text;
}

}  // namespace

std::string read_config_text(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  // A folder opens, but cannot be read.
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.gcount() == 0 && errno != 0)) {
    fail("config", "cannot read {}: {}", path, std::generic_category().message(errno));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMostBytes) fail("config", "{} is larger than 1 MiB; it is no configuration", path);
  return text;
}

toml::table parse_toml(std::string_view text, const std::string& path) {
  check_toml(text, path);
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    fail("config", "{}:{}: {}", path, error.source().begin.line, error.description());
  }
}

ConfigSetting toml_setting(std::string_view key, const toml::node& node, uint32_t line,
                           const std::string& path) {
  const auto fields = config_fields();
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const ConfigField& known) { return known.is_named(key); });
  if (field == fields.end()) {
    fail("config", "{}:{}: unknown key '{}'; {}", path, line, key, config_field_hint(key));
  }
  const auto value = value_text(node, *field);
  if (!value) {
    fail("config", "{}:{}: {} is {}; it must be {}", path, line, field->name, type_name(node.type()),
         wanted_type(*field));
  }
  return {&*field, *value, fmt::format("{}:{}: {}", path, line, key)};
}

RunConfig parse_config(std::string_view text, const std::string& path) {
  const toml::table table = parse_toml(text, path);
  std::vector<Line> lines;
  for (const auto& [key, node] : table) {
    const uint32_t number = key.source().begin.line;
    lines.push_back({number, toml_setting(key.str(), node, number, path)});
  }
  // The table is in the order of names; of two errors the upper one is told.
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.number < b.number; });
  std::vector<ConfigSetting> level;
  for (Line& line : lines) level.push_back(std::move(line.setting));
  RunConfig config;
  apply_level(config, level);
  return config;
}

RunConfig load_config(const std::string& path) { return parse_config(read_config_text(path), path); }

std::string config_text(const RunConfig& config) {
  RunConfig written = config;
  if (written.steps > 0) written.epochs = 0;
  std::string text = "# A training run of ulp. Flags of the command line go before what stands here.\n";
  std::string_view group;
  for (const ConfigField& field : config_fields()) {
    if (field.group != group) text += fmt::format("\n### {}\n", field.group);
    group = field.group;
    text += fmt::format("\n# {}\n{} = {}\n", field.help, field.name, toml_value(field, written));
  }
  return text;
}

}  // namespace ulp
