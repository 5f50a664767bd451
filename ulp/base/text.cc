#include "ulp/base/text.h"

#include <fmt/format.h>

#include <cstdint>

namespace ulp {

std::string shown_text(std::string_view bytes, size_t most) {
  std::string line;
  for (const char c : bytes.substr(0, most)) {
    const bool plain = c >= ' ' && c <= '~';
    line += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return bytes.size() > most ? line + "..." : line;
}

}  // namespace ulp
