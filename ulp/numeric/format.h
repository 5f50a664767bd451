// Floating-point formats as values: fp(e,m,b) with what its top codes mean.
//
// A code is sign, exponent field E (e bits), mantissa M (m bits). E > 0 means (-1)^s 2^(E - bias)
// 1.M, E = 0 is subnormal: the exponent of E = 1 and no leading one. bias = 2^(e-1) - 1 + b, where
// b is the extra bias of the name: b = 4 moves the whole range down by 2^4.
//
// A FloatFormat made by make_format or parse_format is valid: every finite code is a finite fp32
// number, so decoding is always exact.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ulp {

enum class Specials : uint8_t {
  none,  // every code is a finite number
  ieee,  // the top exponent is infinity (M = 0) and NaN
  fn,    // only the all-ones code is NaN; no infinity (OCP e4m3)
};

struct FloatFormat {
  uint8_t exp;   // exponent bits, 2..8
  uint8_t man;   // mantissa bits, 0..23
  int16_t bias;  // the whole bias, 2^(exp-1) - 1 + b
  Specials specials;

  bool operator==(const FloatFormat&) const = default;

  constexpr int bits() const { return 1 + exp + man; }
  constexpr int extra_bias() const { return bias - ((1 << (exp - 1)) - 1); }
  // Exponent of the smallest normal number.
  constexpr int emin() const { return 1 - bias; }
  constexpr bool has_inf() const { return specials == Specials::ieee; }
  // With m = 0 the top exponent of an ieee format has room for infinity only.
  constexpr bool has_nan() const {
    return specials == Specials::fn || (specials == Specials::ieee && man > 0);
  }
  // Code, without its sign, of the largest finite number. All codes above it are specials.
  constexpr uint32_t max_code() const {
    const uint32_t all_ones = (uint32_t{1} << (exp + man)) - 1;
    if (specials == Specials::none) return all_ones;
    if (specials == Specials::fn) return all_ones - 1;
    return all_ones - (uint32_t{1} << man);
  }
  // Exponent of the largest finite number.
  constexpr int emax() const { return static_cast<int>(max_code() >> man) - bias; }
};

// The format fp(exp, man, extra_bias) with the given specials. Throws Error, naming the limits, if
// it is not valid.
FloatFormat make_format(int exp, int man, int extra_bias, Specials specials);

// Throws the same for a value put together by hand.
void check_format(const FloatFormat& format);

// Names: the presets; eEmM (ieee, b = 0, but e4m3, e3m2, e2m3 and e2m1 are OCP's formats: fn, and no
// specials); fp(e,m,b) (no specials); so that every format has one, fp(e,m,b,ieee) and
// fp(e,m,b,fn); and PyTorch's, such as bfloat16 and float8_e4m3fn. Throws Error for anything else.
FloatFormat parse_format(std::string_view name);
// The same, but nothing for a name that has none of these forms. A well-formed name of an invalid
// format throws.
std::optional<FloatFormat> find_format(std::string_view name);

// The shortest name that parse_format turns back into the same format.
std::string format_name(const FloatFormat& format);

std::string_view specials_name(Specials specials);

// Facts, all exact in fp32.
float largest(const FloatFormat& format);
float smallest_normal(const FloatFormat& format);
// The smallest positive number: with m = 0 there are no subnormals and it is the smallest normal
// one.
float smallest_positive(const FloatFormat& format);
// Distance from 1 to the next number of the same mantissa width: 2^-m.
float epsilon(const FloatFormat& format);

struct Preset {
  std::string_view name;
  FloatFormat format;
  std::string_view note;
};

// The table of named formats; a row adds a name.
std::span<const Preset> presets();

// "fp32, tf32, ..." for error messages.
std::string preset_names();
// "the nearest is bf16; " for them, or "" where no name is near.
std::string nearest_format(std::string_view name);

}  // namespace ulp
