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

void check_sizes(const Split& split, size_t n, size_t high, size_t words) {
  const size_t need_high = packed_bytes(split.high.bits(), n), need_words = split_words(split, n);
  if (high < need_high || words < need_words) {
    fail("split", "{} numbers in {}+{} take {} bytes and {} words, got room for {} and {}", n,
         format_name(split.high), split.extra, need_high, need_words, high, words);
  }
}

// The loops over a run, with the high part's type and the kind of split known, so that they
// vectorise. Bytes may alias anything: the compiler must be told that they do not.
template <typename High, bool stochastic>
void split_run(const CodecSpec& wide, int extra, const uint32_t* __restrict random, size_t n,
               uint32_t* __restrict codes, uint8_t* __restrict high) {
  const CodecSpec spec = wide;
  for (size_t i = 0; i < n; ++i) {
    const SplitCode s = split_code(spec, extra, stochastic, codes[i], stochastic ? random[i] : 0);
    const High part = static_cast<High>(s.high);
    std::memcpy(high + i * sizeof(High), &part, sizeof(High));
    codes[i] = s.side;
  }
}

template <typename High>
void join_run(int extra, const uint8_t* __restrict high, size_t n, uint32_t* __restrict codes) {
  for (size_t i = 0; i < n; ++i) {
    High part;
    std::memcpy(&part, high + i * sizeof(High), sizeof(High));
    codes[i] = join_code(extra, {part, codes[i]});
  }
}

}  // namespace

EncodeStats split_encode(const Split& split, Overflow overflow, const RoundKey& key,
                         std::span<const float> in, std::span<uint8_t> high, std::span<uint32_t> side,
                         uint64_t first, ExponentHistogram* histogram) {
  check_sizes(split, in.size(), high.size(), side.size());
  check_elements(first, in.size());
  const CodecSpec wide = make_wide_spec(split, overflow);
  const kernels::Table& table = kernels::table();
  const size_t high_bytes = static_cast<size_t>(split.high.bits()) / 8;
  const int side_bits = split.side_bits();
  // Bits past the last value are zero.
  if (const size_t words = split_words(split, in.size()); words > 0) side[words - 1] = 0;
  return encode_runs(in, histogram, [&](size_t begin, size_t n) {
    alignas(64) uint32_t codes[kRun], random[kRun];
    const EncodeStats stats =
        kernels::encode_run(table, {&wide, Round::nearest_even, in.data() + begin, n, codes, 4, nullptr});
    if (split.stochastic) table.random_words(key, first + begin, n, random);
    const auto run = high_bytes == 1
                         ? (split.stochastic ? split_run<uint8_t, true> : split_run<uint8_t, false>)
                         : (split.stochastic ? split_run<uint16_t, true> : split_run<uint16_t, false>);
    run(wide, split.extra, random, n, codes, high.data() + begin * high_bytes);
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
    const auto join = high_bytes == 1 ? join_run<uint8_t> : join_run<uint16_t>;
    join(split.extra, high.data() + begin * high_bytes, n, codes);
    table.decode({&wide, codes, 4, out.data() + begin, n, false});
  });
}

}  // namespace ulp
