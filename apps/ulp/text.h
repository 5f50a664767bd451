// How the commands print numbers: for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace ulp {

// JSON keeps the order in which keys were written.
using Json = nlohmann::ordered_json;

// A number for JSON, which has no infinity and no NaN: those become the strings "inf", "-inf" and "nan",
// which Python's float() and strtod read.
Json json_number(double value);
Json json_number(const std::optional<double>& value);  // null: there is none

// On one line, in ASCII. Text that is no UTF-8 has U+FFFD where it is not.
std::string json_text(const Json& json);

// The same for people: shortest digits that read back to the same fp32 number.
std::string number_text(float value);

// Bytes with a unit: 512 B, 1.5 KiB, 3.2 MiB.
std::string bytes_text(double bytes);

// A name with control characters, which a terminal might obey, as '?': bytes below 32, 127, and UTF-8's
// c2 80 to c2 9f.
std::string printable(std::string name);

// A word of a command as a POSIX shell reads it: quoted where it must be, otherwise as it is.
std::string shell_quoted(const std::string& word);

}  // namespace ulp
