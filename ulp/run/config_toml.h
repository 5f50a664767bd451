// Options of a run as they stand in TOML, for files that hold more than one configuration. Errors
// give the file's name and line.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "ulp/run/config.h"

namespace ulp {

// The file's text, which is no longer than a configuration can be.
std::string read_config_text(const std::string& path);
toml::table parse_toml(std::string_view text, const std::string& path);

// The value of a key that must be an option of a run, not yet judged beside its type.
ConfigSetting toml_setting(std::string_view key, const toml::node& value, uint32_t line,
                           const std::string& path);

}  // namespace ulp
