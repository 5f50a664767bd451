// JSON files that a user names: read whole, and refused in words that name the file. Private to the
// folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ulp {

// `what` is how messages call the file: "assignment file". JSON allows a name twice in an object
// and parsers keep one of them; here it would be unclear which is meant, and it is an Error like
// text that is no JSON.
nlohmann::ordered_json read_json_file(std::string_view what, const std::string& path);

// Text from the file on one line, whatever it is.
std::string quoted(const std::string& text);

// What a file says of the network it is of: its single values, names with text as JSON. How formats
// were chosen is no part of that.
std::vector<std::pair<std::string, std::string>> network_of(const nlohmann::ordered_json& file);
// `model "squeezenet", width 0.5`.
std::string described(const std::vector<std::pair<std::string, std::string>>& network);

}  // namespace ulp
