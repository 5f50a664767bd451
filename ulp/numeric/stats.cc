#include "ulp/numeric/stats.h"

#include <bit>
#include <cstddef>

namespace ulp {

void ExponentHistogram::add(uint32_t float_bits) {
  const uint32_t magnitude = float_bits & 0x7FFFFFFFu;
  if (magnitude == 0) {
    ++zero;
  } else if (magnitude > 0x7F800000u) {
    ++nan;
  } else if (magnitude == 0x7F800000u) {
    ++infinite;
  } else {
    const int field = static_cast<int>(magnitude >> 23);
    const int exponent = field > 0 ? field - 127 : std::bit_width(magnitude) - 1 - 149;
    ++bin[static_cast<size_t>(exponent - kLowest)];
  }
}

void ExponentHistogram::merge(const ExponentHistogram& other) {
  for (size_t i = 0; i < bin.size(); ++i) bin[i] += other.bin[i];
  zero += other.zero;
  infinite += other.infinite;
  nan += other.nan;
}

}  // namespace ulp
