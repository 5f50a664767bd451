#include "ulp/numeric/scaled.h"

#include <cstring>

#include "ulp/numeric/kernels.h"
#include "ulp/numeric/runs.h"

namespace ulp {
namespace {

static_assert(kernels::kRun % kScaledBlock == 0, "a run must hold whole blocks");

size_t blocks(size_t n) { return (n + kScaledBlock - 1) / kScaledBlock; }

void check_sizes(size_t n, size_t codes, size_t scales) {
  if (codes < n || scales < blocks(n)) {
    fail("scaled", "{} numbers take {} bytes and {} scales, got room for {} and {}", n, n, blocks(n), codes,
         scales);
  }
}

struct BlockRange {
  uint32_t finite;  // largest finite magnitude, as a pattern
  uint32_t any;     // the same with infinities
};

BlockRange block_range(const float* in, size_t n) {
  BlockRange range{0, 0};
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    x &= 0x7FFFFFFFu;
    if (x < 0x7F800000u && x > range.finite) range.finite = x;
    if (x <= 0x7F800000u && x > range.any) range.any = x;
  }
  return range;
}

}  // namespace

Scaled make_scaled(const FloatFormat& element) {
  if (element.bits() != 8 || element.extra_bias() != 0) {
    fail("scaled", "{}: scaled storage takes an 8-bit format with b = 0 (e4m3, e5m2, fp(4,3,0), fp(5,2,0))",
         format_name(element));
  }
  return {element};
}

EncodeStats scaled_encode(const Scaled& scaled, const Rounding& rounding, std::span<const float> in,
                          std::span<uint8_t> codes, std::span<uint32_t> scales, uint64_t first,
                          ExponentHistogram* histogram) {
  check_sizes(in.size(), codes.size(), scales.size());
  check_elements(first, in.size());
  if (first % kScaledBlock != 0) {
    fail("scaled", "a part of a tensor must start at a multiple of {}, got {}", kScaledBlock, first);
  }
  const CodecSpec spec = make_spec(scaled.element, rounding.overflow);
  const CodecSpec saturating = make_spec(scaled.element, Overflow::saturate);
  return encode_runs(in, histogram, [&](size_t begin, size_t n) {
    alignas(64) float moved[kernels::kRun];
    uint32_t amax = 0;
    for (size_t at = 0; at < n; at += kScaledBlock) {
      const float* from = in.data() + begin + at;
      const size_t count = std::min(kScaledBlock, n - at);
      const BlockRange range = block_range(from, count);
      amax = std::max(amax, range.any);
      const int k = scale_exponent(saturating, rounding.mode, range.finite);
      scales[(begin + at) / kScaledBlock] = static_cast<uint32_t>(127 + k) << 23;
      const float inverse = bits_float(static_cast<uint32_t>(127 - k) << 23);
      for (size_t i = 0; i < count; ++i) moved[at + i] = from[i] * inverse;
    }
    EncodeStats stats = encode_packed(spec, rounding, moved, n, first + begin, codes.data() + begin);
    stats.amax = bits_float(amax);
    return stats;
  });
}

void scaled_decode(const Scaled& scaled, std::span<const uint8_t> codes, std::span<const uint32_t> scales,
                   std::span<float> out) {
  check_sizes(out.size(), codes.size(), scales.size());
  const CodecSpec spec = make_spec(scaled.element, Overflow::saturate);
  for_runs(out.size(), [&](size_t begin, size_t n) {
    float* to = out.data() + begin;
    decode_packed(spec, codes.data() + begin, n, to, false);
    for (size_t at = 0; at < n; at += kScaledBlock) {
      const float scale = bits_float(scales[(begin + at) / kScaledBlock]);
      for (size_t i = at; i < std::min(n, at + kScaledBlock); ++i) to[i] *= scale;
    }
  });
}

}  // namespace ulp
