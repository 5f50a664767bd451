// Split storage: a number of format fp(e, m+N) kept as a high part of 8 or 16 bits, which is itself
// a number of format fp(e, m) that an operator can read, and N extra bits beside it, which only the
// weight update reads.
//
// Writing rounds to nearest-even into fp(e, m+N), then splits. The high part is the truncation, or
// with `stochastic` a stochastic rounding; one more bit then says whether it was rounded up, so
// that the exact value can be restored. It is never rounded up past the largest finite number.
// `bf16+16` holds every finite fp32 number exactly.
//
// Extra bits are packed like all codes (codec.h), least significant bit first, into 32-bit words:
// 32 values of B bits fill B words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulp/base/device.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/numeric/scalar.h"
#include "ulp/numeric/stats.h"

namespace ulp {

struct Split {
  FloatFormat high;         // 8 or 16 bits
  int extra;                // N
  bool stochastic = false;  // the high part rounded stochastically

  bool operator==(const Split&) const = default;

  // Bits kept beside the high part: N, and one that says "rounded up".
  constexpr int side_bits() const { return extra + (stochastic ? 1 : 0); }
};

// Throws Error, naming the limits, unless the high part has 8 or 16 bits, 0 <= N <= min(16, 23 -
// m), and fp(e, m+N) is valid.
Split make_split(const FloatFormat& high, int extra, bool stochastic);

// The codec of fp(e, m+N). Its largest number has the largest high part and all extra bits set, so
// that the high part of a finite number is finite: with fn specials that is less than the format by
// itself would hold. Specials keep all their information in the high part, and are the high
// format's: where that has no NaN, a NaN becomes the largest number.
CodecSpec make_wide_spec(const Split& split, Overflow overflow);

struct SplitCode {
  uint32_t high;  // code of the high format
  uint32_t side;  // N extra bits, the rounded-up bit above them
};

// A code of the wide format, split. `random` is read only where the high part is rounded
// stochastically.
ULP_HD constexpr SplitCode split_code(const CodecSpec& wide, int extra, bool stochastic, uint32_t code,
                                      uint32_t random) {
  SplitCode s{code >> extra, code & ((uint32_t{1} << extra) - 1)};
  if (stochastic) {
    const uint32_t largest = wide.max_code >> extra;
    const uint32_t magnitude = (code & ((uint32_t{1} << wide.sign_shift) - 1)) >> extra;
    // floor(fraction * 2^32), as in stochastic rounding everywhere; a shift by 32 where there are
    // no extra bits.
    const uint32_t fraction = s.side << 1 << (31 - extra);
    // Without branches, so that a loop over this becomes vectors.
    const uint32_t up = static_cast<uint32_t>(random < fraction) & static_cast<uint32_t>(magnitude < largest);
    s.high += up;  // codes are consecutive: the carry runs into the exponent
    s.side |= up << extra;
  }
  return s;
}

ULP_HD constexpr uint32_t join_code(int extra, SplitCode s) {
  const uint32_t low = s.side & ((uint32_t{1} << extra) - 1), up = s.side >> extra;
  return (s.high - up) << extra | low;
}

// 32-bit words that the extra bits of n values take: ceil(n * side_bits / 32).
size_t split_words(const Split& split, size_t n);

// Arrays. `high` holds one high code per value (1 or 2 bytes each), `side` split_words(split, n)
// words.
EncodeStats split_encode(const Split& split, Overflow overflow, const RoundKey& key,
                         std::span<const float> in, std::span<uint8_t> high, std::span<uint32_t> side,
                         uint64_t first = 0, ExponentHistogram* histogram = nullptr);
// The exact values of fp(e, m+N). The high parts alone are read by decode() of codec.h.
void split_decode(const Split& split, std::span<const uint8_t> high, std::span<const uint32_t> side,
                  std::span<float> out);

}  // namespace ulp
