// Codes of 16 bits without specials as fp16, whose exponents do not go as far: in a window of 30 of them that moves with the tensor. A
// code's bits are moved, so a number within the window becomes the same number times a power of two, always exactly; numbers
// outside are noticed. What those above become has no meaning; those below become 0 or less than they are, and what is missing is known. Two codes to a word, in few of a GPU's instructions; on the host the same in plain ones.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"

namespace ulp::cuda {

// Of 16 or 8 bits, without specials.
struct HalfFormat {
  uint32_t man = 9;
  int32_t bias = 31;
  uint32_t top = 63;  // the highest field of an exponent
};

// Of each half of a word, as numbers without signs: the largest of three; the smaller of a + b and c. As numbers with signs: the larger of a + b and c.
ULP_HD inline uint32_t most_of_halves(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  return __vimax3_u16x2(a, b, c);
#else
  const auto largest = [](uint32_t x, uint32_t y, uint32_t z) {
    const uint32_t two = x > y ? x : y;
    return two > z ? two : z;
  };
  return largest(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu) | largest(a >> 16, b >> 16, c >> 16) << 16;
#endif
}
ULP_HD inline uint32_t add_then_least(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  return __viaddmin_u16x2(a, b, c);
#else
  const auto one = [](uint32_t x, uint32_t y, uint32_t z) {
    const uint32_t sum = (x + y) & 0xFFFFu;
    return sum < z ? sum : z;
  };
  return one(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu) | one(a >> 16, b >> 16, c >> 16) << 16;
#endif
}
ULP_HD inline uint32_t add_then_most(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  return __viaddmax_s16x2(a, b, c);
#else
  const auto one = [](uint32_t x, uint32_t y, uint32_t z) {
    const auto sum = static_cast<int16_t>(x + y), least = static_cast<int16_t>(z);
    return uint32_t{static_cast<uint16_t>(sum > least ? sum : least)};
  };
  return one(a & 0xFFFFu, b & 0xFFFFu, c & 0xFFFFu) | one(a >> 16, b >> 16, c >> 16) << 16;
#endif
}

// Fields offset + 1 to offset + 30 are normal numbers of fp16; with no offset those below are its subnormal ones. Chosen such that
// the largest of the tensor, an fp32 pattern, is in the highest once it is rounded; a wrong one makes more numbers lie outside.
ULP_HD constexpr uint32_t window_offset(const HalfFormat& format, uint32_t most) {
  const int32_t field =
      static_cast<int32_t>((most + (uint32_t{1} << (22 - format.man))) >> 23) - 127 + format.bias;
  const auto top = static_cast<int32_t>(format.top), highest = field < top ? field : top;
  return highest > 30 ? static_cast<uint32_t>(highest - 30) : 0;
}

// The window of a tensor as words are converted with it.
struct HalfWindow {
  uint32_t lowered = 0;                 // what is added to magnitudes, in both halves
  uint32_t shift = 0;                   // from the format's mantissas to fp16's
  uint32_t beyond = 0, first_less = 0;  // the first magnitude above; the first within, less 1

  ULP_HD static constexpr HalfWindow of(const HalfFormat& format, uint32_t offset) {
    return {((0u - (offset << format.man)) & 0xFFFFu) * 0x00010001u, 10 - format.man,
            (offset + 31) << format.man, offset == 0 ? 0 : ((offset + 1) << format.man) - 1};
  }
};

// Of the magnitudes of all codes, in each half: the largest, and the smallest but 0, less 1, which makes 0 the largest there is.
struct HalvesSeen {
  uint32_t most = 0, least_less = 0xFFFFFFFFu;

  // Whether one of them lies outside.
  ULP_HD constexpr bool above(const HalfWindow& window) const {
    const uint32_t high = most >> 16, low = most & 0xFFFFu;
    return (high > low ? high : low) >= window.beyond;
  }
  ULP_HD constexpr bool below(const HalfWindow& window) const {
    const uint32_t high_less = least_less >> 16, low_less = least_less & 0xFFFFu;
    return (high_less < low_less ? high_less : low_less) < window.first_less;
  }
  ULP_HD constexpr bool outside(const HalfWindow& window) const { return above(window) || below(window); }
};

// 0 stays 0: it is below the window, and no number is below 0.
ULP_HD inline uint32_t move_halves(const HalfWindow& window, uint32_t codes, uint32_t magnitudes) {
  return add_then_most(magnitudes, window.lowered, 0) << window.shift | (codes & 0x80008000u);
}
ULP_HD inline void to_halves(const HalfWindow& window, uint32_t (&word)[4], HalvesSeen& seen) {
  for (int i = 0; i < 4; i += 2) {
    const uint32_t first = word[i] & 0x7FFF7FFFu, second = word[i + 1] & 0x7FFF7FFFu;
    seen.most = most_of_halves(seen.most, first, second);
    seen.least_less = add_then_least(first, 0xFFFFFFFFu, seen.least_less);
    seen.least_less = add_then_least(second, 0xFFFFFFFFu, seen.least_less);
    word[i] = move_halves(window, word[i], first);
    word[i + 1] = move_halves(window, word[i + 1], second);
  }
}

// Of one code, what HalvesSeen knows of many.
ULP_HD constexpr bool lies_below(const HalfWindow& window, uint32_t code) {
  return (((code & 0x7FFFu) - 1) & 0xFFFFu) < window.first_less;
}
// What fp16 lacks of a code below the window, in fp32: always exact, of no longer a mantissa than the code's.
ULP_HD inline float missing_part(const HalfFormat& format, const HalfWindow& window, uint32_t offset,
                                 uint32_t code) {
  const uint32_t magnitude = code & 0x7FFFu;
  // In fp32's place fields are 127 - bias too low, in the window they are bias - 15 - offset too high.
  const float whole = bits_float(magnitude << (23 - format.man)) * bits_float((127 + 112 - offset) << 23);
  // Of the field just below, a number of fp16 without its leading bit; else 0.
  const uint32_t moved = add_then_most(magnitude, window.lowered, 0) << window.shift & 0x7FFFu;
  const float missing = whole - static_cast<float>(moved) * 0x1p-24f;
  return (code & 0x8000u) != 0 ? -missing : missing;
}

// An fp32 number that is one of fp16 times 2^-112, which has fp16's exponent in fp32's place.
ULP_HD constexpr uint32_t half_of(uint32_t pattern) {
  return (pattern >> 16 & 0x8000u) | (pattern >> 13 & 0x7FFFu);
}
// Not 0 where it is none.
ULP_HD constexpr uint32_t not_half(uint32_t pattern) {
  return (pattern & 0x1FFFu) | ((pattern & 0x7FFFFFFFu) >= 31u << 23 ? 1 : 0);
}

}  // namespace ulp::cuda
