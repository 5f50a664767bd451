#include "ulp/numeric/scaled.h"

#include <cstring>

#include "ulp/numeric/kernels.h"
#include "ulp/numeric/runs.h"

namespace ulp {
namespace {

static_assert(kernels::kRun % kScaledBlock == 0, "a run must hold whole blocks");

void check_sizes(size_t n, size_t codes, size_t scales) {
  if (codes < n || scales < scaled_blocks(n)) {
    fail("scaled", "{} numbers take {} bytes and {} scales, got room for {} and {}", n, n, scaled_blocks(n),
         codes, scales);
  }
}

// The pattern of the largest finite magnitude.
uint32_t largest_finite(const float* in, size_t n) {
  int32_t largest = 0;  // signed, since every vector unit compares those
  for (size_t i = 0; i < n; ++i) {
    int32_t x;
    std::memcpy(&x, in + i, sizeof x);
    x &= 0x7FFFFFFF;
    x = x < 0x7F800000 ? x : 0;
    largest = x > largest ? x : largest;
  }
  return static_cast<uint32_t>(largest);
}

// Codes of zero become the smallest where the number is not zero. Returns how many.
uint64_t lift_zeros(const float* in, size_t n, uint8_t* codes) {
  uint32_t lifted = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto lost =
        static_cast<uint8_t>(static_cast<uint8_t>((codes[i] & 0x7F) == 0) & static_cast<uint8_t>(in[i] != 0));
    codes[i] = static_cast<uint8_t>(codes[i] | lost);
    lifted += lost;
  }
  return lifted;
}

}  // namespace

Scaled make_scaled(const FloatFormat& element, bool nonzero) {
  if (element.bits() != 8 || element.extra_bias() != 0) {
    fail("scaled", "{}: scaled storage takes an 8-bit format with b = 0 (e4m3, e5m2, fp(4,3,0), fp(5,2,0))",
         format_name(element));
  }
  return {element, nonzero};
}

EncodeStats scaled_encode(const Scaled& scaled, const Rounding& rounding, std::span<const float> in,
                          std::span<uint8_t> codes, std::span<uint32_t> scales, uint64_t first,
                          ExponentHistogram* histogram) {
  check_sizes(in.size(), codes.size(), scales.size());
  check_elements(first, in.size());
  if (first % kScaledBlock != 0) {
    fail("scaled", "a part of a tensor must start at a multiple of {}, got {}", kScaledBlock, first);
  }
  const CodecSpec element = make_spec(scaled.element, rounding.overflow);
  return encode_runs(in, histogram, [&](size_t begin, size_t n) {
    EncodeStats stats;
    for (size_t at = begin; at < begin + n; at += kScaledBlock) {
      const size_t count = std::min(kScaledBlock, begin + n - at);
      const int k = scale_exponent(element, rounding.mode, largest_finite(in.data() + at, count));
      scales[at / kScaledBlock] = static_cast<uint32_t>(127 + k) << 23;
      stats.merge(encode_packed(scaled_spec(element, k), rounding, in.data() + at, count, first + at,
                                codes.data() + at));
      if (scaled.nonzero) stats.underflow -= lift_zeros(in.data() + at, count, codes.data() + at);
    }
    return stats;
  });
}

void scaled_decode(const Scaled& scaled, std::span<const uint8_t> codes, std::span<const uint32_t> scales,
                   std::span<float> out) {
  check_sizes(out.size(), codes.size(), scales.size());
  const CodecSpec element = make_spec(scaled.element, Overflow::saturate);
  const int lowest = lowest_scale(element), highest = highest_scale(element);
  for_runs(out.size(), [&](size_t begin, size_t n) {
    for (size_t at = begin; at < begin + n; at += kScaledBlock) {
      const uint32_t scale = scales[at / kScaledBlock];
      const int k = static_cast<int>(scale >> 23) - 127;
      // Only a damaged file has another.
      if (scale << 9 != 0 || k < lowest || k > highest) {
        fail("scaled", "the scale of block {} must be a power of two from 2^{} to 2^{}, got pattern {:#010x}",
             at / kScaledBlock, lowest, highest, scale);
      }
      decode_packed(scaled_spec(element, k), codes.data() + at, std::min(kScaledBlock, begin + n - at),
                    out.data() + at, false);
    }
  });
}

}  // namespace ulp
