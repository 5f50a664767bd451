#include "ulp/numeric/split.h"

#include <algorithm>
#include <cstring>

#include "ulp/numeric/codec.h"
#include "ulp/numeric/kernels.h"
#include "ulp/numeric/runs.h"

namespace ulp {

using kernels::kRun;

static_assert(kRun % 32 == 0, "a run must start on a word of extra bits");

Split make_split(const FloatFormat& high, int extra, bool stochastic) {
  if (high.bits() != 8 && high.bits() != 16) {
    fail("split", "{} has {} bits; extra bits go with a high part of 8 or 16 (bf16+8, fp16+13sr, e5m2+8)",
         format_name(high), high.bits());
  }
  const int most = std::min(16, 23 - high.man);
  if (extra < 0 || extra > most) {
    fail("split", "{} takes 0 to {} extra bits, got {}", format_name(high), most, extra);
  }
  const int lowest = high.emin() - high.man - extra;
  if (lowest < -149) {
    fail("split", "{}+{}: its smallest number 2^{} is below fp32's 2^-149; at most {} extra bits fit",
         format_name(high), extra, lowest, extra + lowest + 149);
  }
  return {high, extra, stochastic};
}

CodecSpec make_wide_spec(const Split& split, Overflow overflow) {
  CodecSpec spec = make_spec(split.high, overflow);
  const int n = split.extra;
  const uint32_t ones = (1u << n) - 1;
  const bool to_infinity = spec.over_code != spec.max_code;
  const bool nan_is_largest = spec.nan_code == spec.max_code;
  spec.man += n;
  spec.sign_shift += n;
  spec.max_code = spec.max_code << n | ones;
  spec.over_code = to_infinity ? spec.max_code + 1 : spec.max_code;
  spec.nan_keep <<= n;
  spec.nan_code = nan_is_largest ? spec.max_code : spec.nan_code << n;
  spec.nan_quiet <<= n;
  return spec;
}

size_t split_words(const Split& split, size_t n) { return (packed_bytes(split.side_bits(), n) + 3) / 4; }

namespace {

struct Sizes {
  size_t high, words;
};

Sizes check_sizes(const Split& split, size_t n, size_t high, size_t words) {
  const Sizes need{packed_bytes(split.high.bits(), n), split_words(split, n)};
  if (high < need.high || words < need.words) {
    fail("split", "{} numbers in {}+{} take {} bytes and {} words, got room for {} and {}", n,
         format_name(split.high), split.extra, need.high, need.words, high, words);
  }
  return need;
}

}  // namespace

EncodeStats split_encode(const Split& split, Overflow overflow, const RoundKey& key,
                         std::span<const float> in, std::span<uint8_t> high, std::span<uint32_t> side,
                         uint64_t first, ExponentHistogram* histogram) {
  const Sizes sizes = check_sizes(split, in.size(), high.size(), side.size());
  check_elements(first, in.size());
  const CodecSpec wide = make_wide_spec(split, overflow);
  const kernels::Table& table = kernels::table();
  const size_t high_bytes = static_cast<size_t>(split.high.bits()) / 8;
  const int side_bits = split.side_bits();
  // Bits past the last value are zero.
  if (sizes.words > 0) side[sizes.words - 1] = 0;
  return encode_runs(in, histogram, [&](size_t begin, size_t n) {
    alignas(64) uint32_t codes[kRun], random[kRun];
    const EncodeStats stats =
        kernels::encode_run(table, {&wide, Round::nearest_even, in.data() + begin, n, codes, 4, nullptr});
    if (split.stochastic) {
      table.random_words(key, first + begin, n, random);
    } else {
      std::fill_n(random, n, 0u);
    }
    uint8_t* to = high.data() + begin * high_bytes;
    for (size_t i = 0; i < n; ++i) {
      const SplitCode s = split_code(wide, split.extra, split.stochastic, codes[i], random[i]);
      std::memcpy(to + i * high_bytes, &s.high, high_bytes);
      codes[i] = s.side;
    }
    if (side_bits > 0) {
      pack_bits(codes, n, side_bits, reinterpret_cast<uint8_t*>(side.data() + split_words(split, begin)));
    }
    return stats;
  });
}

void split_decode(const Split& split, std::span<const uint8_t> high, std::span<const uint32_t> side,
                  std::span<float> out) {
  check_sizes(split, out.size(), high.size(), side.size());
  const CodecSpec wide = make_wide_spec(split, Overflow::saturate);
  const kernels::Table& table = kernels::table();
  const size_t high_bytes = static_cast<size_t>(split.high.bits()) / 8;
  const int side_bits = split.side_bits();
  for_runs(out.size(), [&](size_t begin, size_t n) {
    alignas(64) uint32_t codes[kRun];
    if (side_bits > 0) {
      unpack_bits(reinterpret_cast<const uint8_t*>(side.data() + split_words(split, begin)), n, side_bits,
                  codes);
    } else {
      std::fill_n(codes, n, 0u);
    }
    const uint8_t* from = high.data() + begin * high_bytes;
    for (size_t i = 0; i < n; ++i) {
      uint32_t part = 0;
      std::memcpy(&part, from + i * high_bytes, high_bytes);
      codes[i] = join_code(split.extra, {part, codes[i]});
    }
    table.decode({&wide, codes, 4, out.data() + begin, n, false});
  });
}

}  // namespace ulp
