#include "tests/support/oracle.h"

#include <limits>
#include <stdexcept>

namespace ulp::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

uint32_t power_of_two(int n) { return static_cast<uint32_t>(std::ldexp(1.0, n)); }

// The highest exponent field that holds a finite number. With m = 0 the one NaN of `fn` fills the
// top field.
int top_field(int exp, int man, Specials specials) {
  const int fields = static_cast<int>(power_of_two(exp));
  const bool top_is_special = specials == Specials::ieee || (specials == Specials::fn && man == 0);
  return top_is_special ? fields - 2 : fields - 1;
}

int total_bits(const FloatFormat& format) { return 1 + format.exp + format.man; }

}  // namespace

bool is_valid(int exp, int man, int extra_bias, Specials specials) {
  if (exp < 2 || exp > 8 || man < 0 || man > 23) return false;
  const int64_t bias = static_cast<int64_t>(power_of_two(exp - 1)) - 1 + extra_bias;
  return top_field(exp, man, specials) - bias <= 127 && 1 - bias - man >= -149;
}

bool has_infinity(const FloatFormat& format) { return format.specials == Specials::ieee; }

bool has_nan(const FloatFormat& format) {
  // An ieee format without mantissa bits has one code with the top exponent, and that is infinity.
  return format.specials == Specials::fn || (format.specials == Specials::ieee && format.man > 0);
}

uint64_t code_count(const FloatFormat& format) { return uint64_t{1} << total_bits(format); }

int lowest_exponent(const FloatFormat& format) { return 1 - format.bias; }

double largest_number(const FloatFormat& format) {
  const int exponent = top_field(format.exp, format.man, format.specials) - format.bias;
  double significand = 2 - std::ldexp(1.0, -format.man);
  // The NaN of `fn` takes the place of the last number of the top binade.
  if (format.specials == Specials::fn && format.man > 0) significand -= std::ldexp(1.0, -format.man);
  return std::ldexp(significand, exponent);
}

double after_largest(const FloatFormat& format) {
  const int exponent = top_field(format.exp, format.man, format.specials) - format.bias;
  return largest_number(format) + std::ldexp(1.0, exponent - format.man);
}

double smallest_number(const FloatFormat& format) {
  return std::ldexp(1.0, lowest_exponent(format) - format.man);
}

double code_value(const FloatFormat& format, uint32_t code) {
  const uint32_t mantissas = power_of_two(format.man), fields = power_of_two(format.exp);
  const uint32_t mantissa = code % mantissas;
  const uint32_t field = code / mantissas % fields;
  const double sign = code / mantissas / fields == 0 ? 1.0 : -1.0;
  const bool top = field == fields - 1;
  if (format.specials == Specials::ieee && top) return mantissa == 0 ? sign * kInfinity : kNan;
  if (format.specials == Specials::fn && top && mantissa == mantissas - 1) return kNan;
  const double fraction = static_cast<double>(mantissa) / mantissas;
  if (field == 0) return sign * std::ldexp(fraction, 1 - format.bias);
  return sign * std::ldexp(1 + fraction, static_cast<int>(field) - format.bias);
}

Rounder::Rounder(const FloatFormat& format, Round mode, Overflow overflow)
    : mantissa_bits_(format.man),
      largest_(largest_number(format)),
      overflow_becomes_(overflow == Overflow::infinity ? kInfinity : largest_),
      nan_becomes_(has_nan(format) ? kNan : largest_),
      mode_(mode) {
  for (int exponent = kLowestExponent; exponent <= kHighestExponent; ++exponent) {
    const int unit = std::max(exponent, lowest_exponent(format)) - mantissa_bits_;
    grids_[exponent - kLowestExponent] = {std::ldexp(1.0, unit), std::ldexp(1.0, -unit)};
  }
}

bool Rounder::tie_goes_up(double below) const {
  // The integer significands of the two neighbours. The upper one may open the next binade, where
  // the significand starts again at 2^m; with m = 0 that is 1, so both are odd and the larger
  // magnitude wins.
  const double first_normal = std::ldexp(1.0, mantissa_bits_);
  const double above = below + 1 == 2 * first_normal ? first_normal : below + 1;
  const bool below_even = std::fmod(below, 2) == 0, above_even = std::fmod(above, 2) == 0;
  return above_even || !below_even;
}

Rounded round(const FloatFormat& format, Round mode, Overflow overflow, float x, uint32_t random) {
  return Rounder(format, mode, overflow).round(x, random);
}

Bracket bracket(const FloatFormat& format, double x) {
  const double spacing = std::ldexp(1.0, std::max(std::ilogb(x), lowest_exponent(format)) - format.man);
  const double below = std::floor(x / spacing) * spacing;
  const double fraction = (x - below) / spacing;
  return {below, below + spacing, fraction, static_cast<uint64_t>(std::floor(fraction * 0x1p32))};
}

CodeTable::CodeTable(const FloatFormat& format) {
  if (total_bits(format) > 16) throw std::invalid_argument("a code table is for at most 16 bits");
  for (uint32_t code = 0; code < code_count(format); ++code) {
    values_.push_back(code_value(format, code));
    if (code < code_count(format) / 2 && !std::isnan(values_.back()))
      by_value_.emplace_back(values_.back(), code);
  }
  std::sort(by_value_.begin(), by_value_.end());
}

uint32_t CodeTable::code(double value) const {
  const double magnitude = std::fabs(value);
  const auto found = std::lower_bound(by_value_.begin(), by_value_.end(), std::pair(magnitude, uint32_t{0}));
  if (found == by_value_.end() || found->first != magnitude) throw std::out_of_range("the value has no code");
  return found->second + (std::signbit(value) ? static_cast<uint32_t>(values_.size() / 2) : 0);
}

std::vector<double> CodeTable::magnitudes() const {
  std::vector<double> numbers;
  for (const auto& [value, code] : by_value_) {
    if (std::isfinite(value)) numbers.push_back(value);
  }
  return numbers;
}

void Tally::add(float x, RangeEvent event) {
  stats_.overflow += event == RangeEvent::overflow;
  stats_.underflow += event == RangeEvent::underflow;
  stats_.nan += event == RangeEvent::nan;
  if (std::fabs(x) > stats_.amax) stats_.amax = std::fabs(x);  // false for a NaN
}

void Tally::merge(const Tally& other) {
  stats_.overflow += other.stats_.overflow;
  stats_.underflow += other.stats_.underflow;
  stats_.nan += other.stats_.nan;
  stats_.amax = std::max(stats_.amax, other.stats_.amax);
}

ExponentHistogram histogram_of(std::span<const float> inputs) {
  ExponentHistogram histogram;
  for (const float x : inputs) {
    if (std::isnan(x)) {
      ++histogram.nan;
    } else if (std::isinf(x)) {
      ++histogram.infinite;
    } else if (x == 0) {
      ++histogram.zero;
    } else {
      ++histogram.bin.at(std::ilogb(static_cast<double>(x)) + 149);
    }
  }
  return histogram;
}

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 1; round <= 10; ++round) {
    const auto [r0, l0, r1, l1] = counter;  // the paper's names: two pairs, right and left
    const uint64_t left = uint64_t{0xD2511F53} * r0, right = uint64_t{0xCD9E8D57} * r1;
    counter = {static_cast<uint32_t>(right / (uint64_t{1} << 32)) ^ l0 ^ key[0], static_cast<uint32_t>(right),
               static_cast<uint32_t>(left / (uint64_t{1} << 32)) ^ l1 ^ key[1], static_cast<uint32_t>(left)};
    key[0] += 0x9E3779B9;  // the golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

std::vector<uint32_t> random_words(const RoundKey& key, uint64_t first, size_t n) {
  std::vector<uint32_t> words;
  words.reserve(n);
  for (uint64_t block = first / 4; words.size() < n; ++block) {
    const uint32_t high = static_cast<uint32_t>(block >> 32) | uint32_t{key.micro_batch} << 16;
    const std::array<uint32_t, 4> four =
        philox({static_cast<uint32_t>(block), high, key.step, key.tensor},
               {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
    for (uint64_t lane = 0; lane < 4 && words.size() < n; ++lane) {
      if (block * 4 + lane >= first) words.push_back(four[lane]);
    }
  }
  return words;
}

std::vector<uint8_t> pack(int bits, std::span<const uint32_t> codes) {
  std::vector<uint8_t> bytes;
  bytes.reserve((codes.size() * bits + 7) / 8);
  uint64_t pending = 0;
  int held = 0;
  for (const uint32_t code : codes) {
    pending |= uint64_t{code} << held;
    for (held += bits; held >= 8; held -= 8, pending >>= 8) bytes.push_back(static_cast<uint8_t>(pending));
  }
  if (held > 0) bytes.push_back(static_cast<uint8_t>(pending));
  return bytes;
}

std::vector<uint32_t> unpack(int bits, std::span<const uint8_t> bytes, size_t n) {
  std::vector<uint32_t> codes(n, 0);
  for (size_t bit = 0; bit < n * bits; ++bit) {
    const uint32_t set = bytes[bit / 8] >> (bit % 8) & 1;
    codes[bit / bits] |= set << (bit % bits);
  }
  return codes;
}

bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

}  // namespace ulp::oracle
