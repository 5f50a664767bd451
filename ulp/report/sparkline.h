// A curve as a word of text: a letter for each part of it, the higher the larger.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ulp {

// At most `width` letters. Values are cut into as many parts of equal length, give or take one, and each
// part is shown by its mean. The least mean is the lowest letter and the largest the highest, linearly; all
// are in the middle where there is no difference. A part that holds a NaN or an infinity is an x, as such a
// step is what one looks for. Letters are Unicode's blocks of eight heights, or of ASCII eight that grow
// darker.
std::string sparkline(std::span<const double> values, size_t width, bool ascii);

// Columns that a text takes on a terminal: its letters, of which UTF-8 may need several bytes each.
size_t text_columns(std::string_view text);

}  // namespace ulp
