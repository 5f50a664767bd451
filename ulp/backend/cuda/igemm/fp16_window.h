// Conversion of 16-bit codes without specials to fp16, which has a smaller exponent range. A window
// of 30 exponents follows the tensor's largest value. A code's bits are shifted, so a value within
// the window becomes the same value times a power of two, always exactly. Values outside are
// detected. Values above the window are undefined. Values below it become 0 or lose magnitude;
// missing_part gives the lost part, which the caller adds back (fp16_fixup.h). A word holds two
// codes and takes few GPU instructions; the host computes the same with plain ones.
#pragma once

#include <cstdint>

#include "ulp/base/device.h"

namespace ulp::cuda {

// A format of 16 or 8 bits without specials.
struct Fp16Source {
  uint32_t man = 9;
  int32_t bias = 31;
  uint32_t top = 63;  // the highest exponent field
};

// On each 16-bit half of a word. Unsigned: the largest of three; the smaller of a + b and c.
// Signed: the larger of a + b and c.
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

// The window's position. Exponent fields offset + 1 to offset + 30 become normal fp16 numbers; with
// offset 0 the fields below become fp16 subnormals. The offset puts the tensor's largest value
// `most` (an fp32 pattern), once rounded, into the highest field. A wrong offset only makes more
// values lie outside.
ULP_HD constexpr uint32_t window_offset(const Fp16Source& format, uint32_t most) {
  const int32_t field =
      static_cast<int32_t>((most + (uint32_t{1} << (22 - format.man))) >> 23) - 127 + format.bias;
  const auto top = static_cast<int32_t>(format.top), highest = field < top ? field : top;
  return highest > 30 ? static_cast<uint32_t>(highest - 30) : 0;
}

// A tensor's window in the form that conversion uses.
struct Fp16Window {
  uint32_t lowered = 0;  // added to magnitudes, in both halves
  uint32_t shift = 0;    // from the format's mantissa to fp16's
  // The first magnitude above the window; the first within it, minus 1.
  uint32_t beyond = 0, first_less = 0;

  ULP_HD static constexpr Fp16Window of(const Fp16Source& format, uint32_t offset) {
    return {((0u - (offset << format.man)) & 0xFFFFu) * 0x00010001u, 10 - format.man,
            (offset + 31) << format.man, offset == 0 ? 0 : ((offset + 1) << format.man) - 1};
  }
};

// Over the magnitudes of all codes, per half: the largest, and the smallest minus 1. Zero minus 1
// wraps to the largest number, so zeros do not count.
struct HalvesSeen {
  uint32_t most = 0, least_less = 0xFFFFFFFFu;

  // Whether a value lies outside.
  ULP_HD constexpr bool above(const Fp16Window& window) const {
    const uint32_t high = most >> 16, low = most & 0xFFFFu;
    return (high > low ? high : low) >= window.beyond;
  }
  ULP_HD constexpr bool below(const Fp16Window& window) const {
    const uint32_t high_less = least_less >> 16, low_less = least_less & 0xFFFFu;
    return (high_less < low_less ? high_less : low_less) < window.first_less;
  }
  ULP_HD constexpr bool outside(const Fp16Window& window) const { return above(window) || below(window); }
};

// 0 stays 0: it is below the window, and subtraction saturates at 0.
ULP_HD inline uint32_t move_halves(const Fp16Window& window, uint32_t codes, uint32_t magnitudes) {
  return add_then_most(magnitudes, window.lowered, 0) << window.shift | (codes & 0x80008000u);
}
ULP_HD inline void to_fp16(const Fp16Window& window, uint32_t (&word)[4], HalvesSeen& seen) {
  for (int i = 0; i < 4; i += 2) {
    const uint32_t first = word[i] & 0x7FFF7FFFu, second = word[i + 1] & 0x7FFF7FFFu;
    seen.most = most_of_halves(seen.most, first, second);
    seen.least_less = add_then_least(first, 0xFFFFFFFFu, seen.least_less);
    seen.least_less = add_then_least(second, 0xFFFFFFFFu, seen.least_less);
    word[i] = move_halves(window, word[i], first);
    word[i + 1] = move_halves(window, word[i + 1], second);
  }
}

// HalvesSeen::below for a single code.
ULP_HD constexpr bool lies_below(const Fp16Window& window, uint32_t code) {
  return (((code & 0x7FFFu) - 1) & 0xFFFFu) < window.first_less;
}
// The part of a code below the window that fp16 loses, in fp32. It is always exact, and its
// mantissa is no longer than the code's.
ULP_HD inline float missing_part(const Fp16Source& format, const Fp16Window& window, uint32_t offset,
                                 uint32_t code) {
  const uint32_t magnitude = code & 0x7FFFu;
  // In fp32's position the exponent field is 127 - bias too low; in the window it is bias - 15 -
  // offset too high.
  const float whole = bits_float(magnitude << (23 - format.man)) * bits_float((127 + 112 - offset) << 23);
  // In the field just below the window this is an fp16 number without its leading bit; otherwise 0.
  const uint32_t moved = add_then_most(magnitude, window.lowered, 0) << window.shift & 0x7FFFu;
  const float missing = whole - static_cast<float>(moved) * 0x1p-24f;
  return (code & 0x8000u) != 0 ? -missing : missing;
}

// The fp16 pattern of a number given in fp32 as 2^-112 times its value: fp16's exponent is then in
// fp32's position.
ULP_HD constexpr uint32_t fp16_of(uint32_t pattern) {
  return (pattern >> 16 & 0x8000u) | (pattern >> 13 & 0x7FFFu);
}
// Nonzero if it is no fp16 number.
ULP_HD constexpr uint32_t not_fp16(uint32_t pattern) {
  return (pattern & 0x1FFFu) | ((pattern & 0x7FFFFFFFu) >= 31u << 23 ? 1 : 0);
}

}  // namespace ulp::cuda
