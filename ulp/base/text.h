// Text from outside: how it is shown in messages, sizes in bytes, and what a misspelt name is
// nearest to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ulp {

// Bytes of a file as one short line of ASCII: what cannot be printed as \xNN, and `...` after the
// first `most`.
std::string shown_text(std::string_view bytes, size_t most = 60);

// A whole number of bytes, or of KB, MB or GB, which are powers of 1024: 4096, 64MB. Nothing for
// other text and for numbers that do not fit. A negative number without a unit is one, so that it
// can be refused by its value.
std::optional<int64_t> parse_bytes(std::string_view text);
// The same number as text which parse_bytes takes back, in the largest unit that it is a multiple
// of.
std::string bytes_with_unit(int64_t bytes);

// How many letters to insert, take away or replace to make one of the other: for "did you mean".
size_t edit_distance(std::string_view a, std::string_view b);

// The name that a misspelt word is nearest to, the first of several; "" where more than half of the
// letters of the longer one would have to change, which no slip does.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known);
// "the nearest is NAME; " for a message that goes on with what is known; "" where nothing is near.
std::string nearest_hint(std::string_view word, std::span<const std::string_view> known);

}  // namespace ulp
