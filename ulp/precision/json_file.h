// JSON files that a user names: read whole, and refused in words that name the file. Private to the
// folder.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ulp {

// `what` is how messages call the file: "assignment file". JSON allows a name twice in an object
// and parsers keep one of them; here it would be unclear which is meant, and it is an Error like
// text that is no JSON.
nlohmann::json read_json_file(std::string_view what, const std::string& path);

// Text from the file on one line, whatever it is.
std::string quoted(const std::string& text);

// `model "squeezenet", width 0.5`, as far as the file says.
std::string described(const nlohmann::json& file);

}  // namespace ulp
