#include "ulp/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace ulp {
namespace {

struct Unit {
  std::string_view suffix;
  int shift;
};

constexpr Unit kUnits[] = {{"GB", 30}, {"MB", 20}, {"KB", 10}};

}  // namespace

std::string shown_text(std::string_view bytes, size_t most) {
  std::string line;
  for (const char c : bytes.substr(0, most)) {
    const bool plain = c >= ' ' && c <= '~';
    line += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return bytes.size() > most ? line + "..." : line;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  int shift = 0;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    text.remove_suffix(unit.suffix.size());
    shift = unit.shift;
    break;
  }
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  if (count > std::numeric_limits<int64_t>::max() >> shift) return {};
  if (count < 0 && shift > 0) return {};
  return count << shift;
}

std::string bytes_with_unit(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes > 0 && bytes % (int64_t{1} << unit.shift) == 0) {
      return fmt::format("{}{}", bytes >> unit.shift, unit.suffix);
    }
  }
  return std::to_string(bytes);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string_view name : known) {
    const size_t distance = edit_distance(word, name);
    if (2 * distance > std::max(word.size(), name.size()) || distance >= least) continue;
    best = name;
    least = distance;
  }
  return best;
}

std::string nearest_hint(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view name = nearest_name(word, known);
  return name.empty() ? "" : fmt::format("the nearest is {}; ", name);
}

}  // namespace ulp
