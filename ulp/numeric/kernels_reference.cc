#include <algorithm>
#include <cmath>
#include <cstring>

#include "ulp/numeric/kernels.h"

namespace ulp::kernels {
namespace {

void store_code(void* out, size_t i, int code_bytes, uint32_t code) {
  // Codes are stored little-endian, so the low bytes of the word are the code.
  std::memcpy(static_cast<uint8_t*>(out) + i * static_cast<size_t>(code_bytes), &code,
              static_cast<size_t>(code_bytes));
}

uint32_t load_code(const void* in, size_t i, int code_bytes) {
  uint32_t code = 0;
  std::memcpy(&code, static_cast<const uint8_t*>(in) + i * static_cast<size_t>(code_bytes),
              static_cast<size_t>(code_bytes));
  return code;
}

}  // namespace

EncodeStats reference_encode(const EncodeRun& run) {
  EncodeStats stats;
  uint32_t amax = 0;
  for (size_t i = 0; i < run.n; ++i) {
    uint32_t x;
    std::memcpy(&x, run.in + i, sizeof x);
    const uint32_t random = run.mode == Round::stochastic ? run.random[i] : 0;
    const Encoded e = encode_scalar(*run.spec, run.mode, x, random);
    stats.overflow += e.event == RangeEvent::overflow;
    stats.underflow += e.event == RangeEvent::underflow;
    stats.nan += e.event == RangeEvent::nan;
    // Magnitudes order like their patterns.
    const uint32_t magnitude = x & 0x7FFFFFFFu;
    if (e.event != RangeEvent::nan && magnitude > amax) amax = magnitude;
    store_code(run.out, i, run.code_bytes, e.code);
  }
  stats.amax = bits_float(amax);
  return stats;
}

void reference_decode(const DecodeRun& run) {
  for (size_t i = 0; i < run.n; ++i) {
    const uint32_t x = decode_scalar(*run.spec, load_code(run.in, i, run.code_bytes));
    std::memcpy(run.out + i, &x, sizeof x);
  }
}

void reference_random_words(const RoundKey& key, uint64_t first, size_t n, uint32_t* out) {
  for (size_t i = 0; i < n; ++i) out[i] = random_word(key, first + i);
}

S2fp8Survey reference_survey(const float* in, size_t n) {
  S2fp8Survey survey;
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    const uint32_t raw = x & 0x7FFFFFFFu, magnitude = finite_magnitude(x);
    survey.nan += raw > 0x7F800000u;
    survey.infinite += raw == 0x7F800000u;
    if (magnitude == 0 || magnitude > 0x7F800000u) continue;
    if (raw > survey.most) survey.most = raw;
    const int32_t log = log2_fixed(magnitude);
    survey.logs.merge({log, 1, log});
  }
  return survey;
}

void reference_squeeze(const S2fp8Map& map, const float* in, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    const uint32_t y = s2fp8_squeeze(map, x);
    std::memcpy(out + i, &y, sizeof y);
  }
}

void reference_find_borders(const S2fp8Map& map, const float* starts, S2fp8Borders& borders) {
  for (uint32_t code = 0; code < kS2fp8Codes; ++code) {
    // Of [low, high) the patterns from the border on have the code; `high` is the first infinity.
    uint32_t low = 1, high = 0x7F800000u;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (s2fp8_exponent(map, middle) >= starts[code]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    borders.least[code] = code == 0 ? 0 : low < 0x7F800000u ? low : kNoMagnitude;
  }
}

bool cut_buckets(S2fp8Borders& borders) {
  const uint32_t first = borders.least[1];
  if (first == kNoMagnitude) return false;
  uint32_t codes = 2;
  while (codes < kS2fp8Codes && borders.least[codes] != kNoMagnitude) ++codes;
  const uint32_t range = borders.least[codes - 1] - first;
  borders.shift = 0;
  while (range >> borders.shift >= kS2fp8Buckets) ++borders.shift;
  uint32_t from = 0;
  for (uint32_t code = 1; code < codes; ++code) {
    const uint32_t next =
        code + 1 < codes ? (borders.least[code + 1] - first) >> borders.shift : kS2fp8Buckets;
    if (next <= from) return false;
    std::memset(borders.most + from, static_cast<int>(code), next - from);
    from = next;
  }
  return true;
}

uint64_t reference_encode_by_borders(const S2fp8Borders& borders, const float* in, size_t n, uint8_t* out) {
  const uint32_t first = borders.least[1];
  uint64_t zeros = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    const uint32_t magnitude = x & 0x7FFFFFFFu;
    const uint32_t bucket = (std::max(magnitude, first) - first) >> borders.shift;
    const uint32_t most = borders.most[std::min(bucket, kS2fp8Buckets - 1)];
    const uint32_t code = most - (magnitude < borders.least[most] ? 1 : 0);
    zeros += code == 0 ? 1 : 0;
    out[i] = static_cast<uint8_t>(code | (x >> 24 & 0x80u));
  }
  return zeros;
}

void reference_restore(const S2fp8Map& map, uint32_t* value) {
  for (uint32_t code = 0; code < kS2fp8Codes; ++code) value[code] = s2fp8_restore(map, value[code]);
}

void reference_look_up(const uint32_t* value, const uint8_t* codes, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t x = value[codes[i] & 0x7Fu] | (codes[i] & 0x80u) << 24;
    std::memcpy(out + i, &x, sizeof x);
  }
}

EncodeStats encode_run(const Table& kernels, const EncodeRun& run) {
  const EncodeStats stats = kernels.encode(run);
  return std::isnan(stats.amax) ? reference_encode(run) : stats;
}

}  // namespace ulp::kernels
