// Tensors of codes at random, for programs that check kernels on a real GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "ulp/numeric/format.h"
#include "ulp/numeric/quick.h"

namespace ulp::cuda {

struct Format {
  std::string_view name;

  QuickCodec codec() const {
    const FloatFormat format = parse_format(name);
    return make_quick(make_spec(format, format.has_inf() ? Overflow::infinity : Overflow::saturate));
  }
  uint32_t bits() const { return static_cast<uint32_t>(parse_format(name).bits()); }
  uint32_t bytes() const { return bits() / 8; }
};

// Codes of ordinary numbers, some small and some 0; specials only where there are none.
inline std::vector<uint8_t> random_codes(const Format& format, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t bytes = format.bytes();
  const QuickCodec codec = format.codec();
  // Large tensors repeat themselves.
  std::vector<uint8_t> codes(count * bytes);
  const size_t own = std::min(codes.size(), size_t{1} << 20);
  for (size_t i = 0; i < own; i += bytes) {
    const auto word = static_cast<uint32_t>(random());
    const float unit = std::uniform_real_distribution<float>(-1, 1)(random);
    const float value = word % 16 == 0 ? 0 : std::ldexp(unit, -static_cast<int>(word / 16 % 8));
    const uint32_t code = encode_even(codec, float_bits(value)).code;
    std::memcpy(&codes[i], &code, bytes);
  }
  for (size_t i = own; i < codes.size(); i += own) {
    std::memcpy(&codes[i], codes.data(), std::min(own, codes.size() - i));
  }
  return codes;
}

inline std::vector<float> decoded(const Format& format, const std::vector<uint8_t>& codes) {
  const uint32_t bytes = format.bytes();
  const QuickCodec codec = format.codec();
  std::vector<float> values(codes.size() / bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t code = 0;
    std::memcpy(&code, &codes[i * bytes], bytes);
    values[i] = bits_float(decode_quick(codec, code));
  }
  return values;
}

inline std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace ulp::cuda
