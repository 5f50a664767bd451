// Text from outside in messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ulp {

// Bytes of a file as one short line of ASCII: what cannot be printed as \xNN, and `...` after the first `most`.
std::string shown_text(std::string_view bytes, size_t most = 60);

}  // namespace ulp
