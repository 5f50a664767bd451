#include "ulp/numeric/format.h"

#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/text.h"

namespace ulp {
namespace {

constexpr FloatFormat unchecked(int exp, int man, int extra_bias, Specials specials) {
  return {static_cast<uint8_t>(exp), static_cast<uint8_t>(man),
          static_cast<int16_t>((1 << (exp - 1)) - 1 + extra_bias), specials};
}

constexpr Preset kPresets[] = {
    {"fp32", unchecked(8, 23, 0, Specials::ieee), "IEEE single"},
    {"tf32", unchecked(8, 10, 0, Specials::ieee), "tensor-core fp32: 19 bits"},
    {"bf16", unchecked(8, 7, 0, Specials::ieee), "bfloat16"},
    {"fp16", unchecked(5, 10, 0, Specials::ieee), "IEEE half"},
    {"fp(6,9,0)", unchecked(6, 9, 0, Specials::none), "16 bits, high format of hfp8 assignments"},
    {"e8m5", unchecked(8, 5, 0, Specials::ieee), "14 bits, below bfloat16"},
    {"e8m3", unchecked(8, 3, 0, Specials::ieee), "12 bits, below bfloat16"},
    {"e8m1", unchecked(8, 1, 0, Specials::ieee), "10 bits, below bfloat16"},
    {"e5m2", unchecked(5, 2, 0, Specials::ieee), "OCP 8-bit, wide range"},
    {"e4m3", unchecked(4, 3, 0, Specials::fn), "OCP 8-bit, no infinity, one NaN"},
    {"fp(5,2,0)", unchecked(5, 2, 0, Specials::none), "hfp8, backward"},
    {"fp(4,3,4)", unchecked(4, 3, 4, Specials::none), "hfp8, forward"},
    {"fp(3,2,0)", unchecked(3, 2, 0, Specials::none), "OCP 6-bit e3m2"},
    {"fp(2,3,0)", unchecked(2, 3, 0, Specials::none), "OCP 6-bit e2m3"},
    {"fp(2,1,0)", unchecked(2, 1, 0, Specials::none), "OCP 4-bit e2m1"},
};

// What other programs call some of them.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {{"bfloat16", "bf16"},
                                                                         {"float16", "fp16"},
                                                                         {"float32", "fp32"},
                                                                         {"float8_e4m3fn", "e4m3"},
                                                                         {"float8_e5m2", "e5m2"}};

// The short names that are OCP's: they mean OCP's formats, which have no infinity.
constexpr FloatFormat kOcp[] = {unchecked(4, 3, 0, Specials::fn), unchecked(3, 2, 0, Specials::none),
                                unchecked(2, 3, 0, Specials::none), unchecked(2, 1, 0, Specials::none)};

// What eEmM stands for.
Specials short_specials(int exp, int man) {
  for (const FloatFormat& format : kOcp) {
    if (format.exp == exp && format.man == man) return format.specials;
  }
  return Specials::ieee;
}

constexpr int kMinExp = 2, kMaxExp = 8, kMaxMan = 23;

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string spelled_out(int exp, int man, int extra_bias, Specials specials) {
  if (specials == Specials::none) return fmt::format("fp({},{},{})", exp, man, extra_bias);
  return fmt::format("fp({},{},{},{})", exp, man, extra_bias, specials_name(specials));
}

// `name` is the format as the user wrote it.
FloatFormat checked(std::string_view name, int exp, int man, int extra_bias, Specials specials) {
  if (exp < kMinExp || exp > kMaxExp) {
    fail("format", "{}: exponent bits must be {} to {}, got {}", name, kMinExp, kMaxExp, exp);
  }
  if (man < 0 || man > kMaxMan) {
    fail("format", "{}: mantissa bits must be 0 to {}, got {}", name, kMaxMan, man);
  }
  // With b = 0; a higher b lowers both exponents by as much.
  const FloatFormat unbiased = unchecked(exp, man, 0, specials);
  const int64_t top = int64_t{unbiased.emax()} - extra_bias,
                lowest = int64_t{unbiased.emin()} - man - extra_bias;
  if (top > 127 || lowest < -149) {
    const int least = unbiased.emax() - 127, most = unbiased.emin() - man + 149;
    fail("format",
         "{}: its numbers must be fp32 numbers: largest exponent at most 127 (here {}) and 1 - bias - m at "
         "least -149 (here {}); {}",
         name, top, lowest,
         least <= most ? fmt::format("with e = {} and m = {}, b may be {} to {}", exp, man, least, most)
                       : fmt::format("no b makes e = {} with m = {} valid", exp, man));
  }
  return unchecked(exp, man, extra_bias, specials);
}

// "eEmM".
std::optional<FloatFormat> parse_short(std::string_view name) {
  const size_t m = name.find('m');
  if (!name.starts_with('e') || m == std::string_view::npos) return std::nullopt;
  const auto exp = parse_int(name.substr(1, m - 1));
  const auto man = parse_int(name.substr(m + 1));
  if (!exp || !man || *exp < 0 || *man < 0) return std::nullopt;
  return checked(name, *exp, *man, 0, short_specials(*exp, *man));
}

// "fp(e,m,b)" or "fp(e,m,b,specials)".
std::optional<FloatFormat> parse_long(std::string_view name) {
  if (!name.starts_with("fp(") || !name.ends_with(')')) return std::nullopt;
  const std::string_view written = name;
  name = name.substr(3, name.size() - 4);
  std::vector<std::string_view> fields;
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = name.find(',');
    fields.push_back(trimmed(name.substr(0, comma)));
    if (comma != std::string_view::npos) name.remove_prefix(comma + 1);
  }
  if (fields.size() != 3 && fields.size() != 4) return std::nullopt;
  const auto exp = parse_int(fields[0]), man = parse_int(fields[1]), bias = parse_int(fields[2]);
  if (!exp || !man || !bias) return std::nullopt;
  Specials specials = Specials::none;
  if (fields.size() == 4) {
    if (fields[3] == "ieee") {
      specials = Specials::ieee;
    } else if (fields[3] == "fn") {
      specials = Specials::fn;
    } else if (fields[3] != "none") {
      return std::nullopt;
    }
  }
  return checked(written, *exp, *man, *bias, specials);
}

}  // namespace

FloatFormat make_format(int exp, int man, int extra_bias, Specials specials) {
  return checked(spelled_out(exp, man, extra_bias, specials), exp, man, extra_bias, specials);
}

void check_format(const FloatFormat& format) {
  if (format.exp < kMinExp || format.exp > kMaxExp) {
    fail("format", "exponent bits must be {} to {}, got {}", kMinExp, kMaxExp, format.exp);
  }
  make_format(format.exp, format.man, format.extra_bias(), format.specials);
}

std::optional<FloatFormat> find_format(std::string_view name) {
  name = trimmed(name);
  for (const auto& [other, own] : kOtherNames) {
    if (name == other) name = own;
  }
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.format;
  }
  if (const auto format = parse_short(name)) return format;
  return parse_long(name);
}

std::string nearest_format(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Preset& preset : presets()) known.push_back(preset.name);
  for (const auto& [other, own] : kOtherNames) known.push_back(other);
  return nearest_hint(name, known);
}

FloatFormat parse_format(std::string_view name) {
  if (const auto format = find_format(name)) return *format;
  fail("format",
       "unknown format '{}'; {}known: {}, any eEmM (such as e5m10), any fp(e,m,b) (such as fp(4,3,4))", name,
       nearest_format(name), preset_names());
}

std::string format_name(const FloatFormat& format) {
  for (const Preset& preset : presets()) {
    if (preset.format == format) return std::string(preset.name);
  }
  // Where the short name is OCP's, the ieee format is spelled out.
  const bool is_short = format.specials == short_specials(format.exp, format.man);
  if (is_short && format.specials == Specials::ieee && format.extra_bias() == 0) {
    return fmt::format("e{}m{}", format.exp, format.man);
  }
  return spelled_out(format.exp, format.man, format.extra_bias(), format.specials);
}

std::string_view specials_name(Specials specials) {
  switch (specials) {
    case Specials::none:
      return "none";
    case Specials::ieee:
      return "ieee";
    case Specials::fn:
      return "fn";
  }
  return "?";
}

float largest(const FloatFormat& format) {
  const uint32_t code = format.max_code();
  const uint32_t significand = (code & ((1u << format.man) - 1)) | 1u << format.man;
  return std::ldexp(static_cast<float>(significand), format.emax() - format.man);
}

float smallest_normal(const FloatFormat& format) { return std::ldexp(1.0f, format.emin()); }

float smallest_positive(const FloatFormat& format) { return std::ldexp(1.0f, format.emin() - format.man); }

float epsilon(const FloatFormat& format) { return std::ldexp(1.0f, -format.man); }

std::span<const Preset> presets() { return kPresets; }

std::string preset_names() {
  std::string names;
  for (const Preset& preset : presets()) {
    if (!names.empty()) names += ", ";
    names += preset.name;
  }
  return names;
}

}  // namespace ulp
