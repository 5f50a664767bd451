// JSON from outside. Every reader of JSON goes through parse_json, which no text can make overflow
// the stack, throw another library's exception or take time and memory out of proportion to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

namespace ulp {

// JSON keeps the order in which names were written.
using Json = nlohmann::ordered_json;

// Of what ulp writes nothing is nested deeper than four, and the largest is a file of formats.
constexpr size_t kJsonDepth = 32;
constexpr size_t kJsonBytes = size_t{16} << 20;

// Throws an Error whose message() says what is wrong with the text, such as `has "a" twice`. An
// Error is what is no JSON, what is nested deeper than kJsonDepth or longer than kJsonBytes, a
// number that no double can hold, and a name that comes twice in an object: JSON allows it and
// parsers keep one of the two, so it would be unclear which is meant.
Json parse_json(std::string_view text);

// The whole number of this name, from 0 to `most`. Anything else (a fraction, a negative number,
// text, nothing) throws an Error that says so. A conversion of the library would make some number
// of it, or none that C++ defines.
uint64_t count_of(const Json& object, std::string_view name,
                  uint64_t most = std::numeric_limits<int64_t>::max());

}  // namespace ulp
