#include "ulp/report/json_writer.h"

#include <algorithm>
#include <cmath>

namespace ulp {
namespace {

// Bytes of the character that a text begins with, 1 to 4; 0: it begins with none. As RFC 3629 has
// it: no longer forms than needed, no surrogates, nothing beyond U+10FFFF.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto follows = [&](size_t i, uint8_t least = 0x80, uint8_t most = 0xBF) {
    return byte(i) >= least && byte(i) <= most;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const uint8_t least = lead == 0xE0 ? 0xA0 : 0x80, most = lead == 0xED ? 0x9F : 0xBF;
    return follows(1, least, most) && follows(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const uint8_t least = lead == 0xF0 ? 0x90 : 0x80, most = lead == 0xF4 ? 0x8F : 0xBF;
    return follows(1, least, most) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

void JsonWriter::value(std::string_view text) {
  separate();
  text_ += '"';
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const char c = text.front();
    if (bytes == 0) {
      text_ += "\uFFFD";
    } else if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (c == '\n') {
      text_ += "\\n";
    } else if (bytes == 1 && (static_cast<uint8_t>(c) < ' ' || c == 0x7F)) {
      fmt::format_to(std::back_inserter(text_), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      text_ += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  text_ += '"';
}

template <typename Float>
void JsonWriter::floating(Float number) {
  if (std::isnan(number)) return raw("\"nan\"");
  if (std::isinf(number)) return raw(number > 0 ? "\"inf\"" : "\"-inf\"");
  separate();
  if (number == 0) {
    text_ += '0';
  } else {
    fmt::format_to(std::back_inserter(text_), "{}", number);
  }
}

template void JsonWriter::floating(float);
template void JsonWriter::floating(double);

}  // namespace ulp
