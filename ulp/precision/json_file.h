// JSON files that a user names: read whole, and refused in words that name the file. Private to the
// folder.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/base/json.h"

namespace ulp {

// `what` is how messages call the file: "assignment file".
Json read_json_file(std::string_view what, const std::string& path);

// Text from the file on one line, whatever it is.
std::string quoted(const std::string& text);

// What a file says of the network it is of: its single values, names with text as JSON. How formats
// were chosen is no part of that.
std::vector<std::pair<std::string, std::string>> network_of(const Json& file);
// `model "squeezenet", width 0.5`.
std::string described(const std::vector<std::pair<std::string, std::string>>& network);

}  // namespace ulp
