// What writing a tensor reports, gathered in the same pass that writes it.
#pragma once

#include <array>
#include <cstdint>

namespace ulp {

struct EncodeStats {
  uint64_t overflow = 0;   // rounded magnitude beyond the largest number; infinite inputs too
  uint64_t underflow = 0;  // non-zero inputs written as zero
  uint64_t nan = 0;        // NaN inputs; they count as nothing else
  float amax = 0;          // largest input magnitude, NaN left out, infinity included

  // Sums and a maximum: the result does not depend on the order of merging.
  void merge(const EncodeStats& other) {
    overflow += other.overflow;
    underflow += other.underflow;
    nan += other.nan;
    if (other.amax > amax) amax = other.amax;
  }

  bool operator==(const EncodeStats&) const = default;
};

// Inputs by exponent, on request. bin[k] counts the non-zero finite inputs with floor(log2|x|) = k
// - 149, fp32 subnormals resolved.
struct ExponentHistogram {
  static constexpr int kLowest = -149, kHighest = 127;
  std::array<uint64_t, kHighest - kLowest + 1> bin{};
  uint64_t zero = 0, infinite = 0, nan = 0;

  void add(uint32_t float_bits);
  void merge(const ExponentHistogram& other);
  bool operator==(const ExponentHistogram&) const = default;
};

}  // namespace ulp
