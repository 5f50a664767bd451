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

LogSums reference_log_sums(const float* in, size_t n) {
  LogSums sums;
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    const uint32_t magnitude = finite_magnitude(x);
    if (magnitude == 0 || magnitude > 0x7F800000u) continue;
    const int32_t log = log2_fixed(magnitude);
    sums.merge({log, 1, log});
  }
  return sums;
}

SqueezeReport reference_squeeze(const S2fp8Map& map, const float* in, size_t n, float* out) {
  SqueezeReport report{};
  uint32_t amax = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    const uint32_t magnitude = x & 0x7FFFFFFFu;
    report.infinite += magnitude == 0x7F800000u;
    if (magnitude <= 0x7F800000u && magnitude > amax) amax = magnitude;
    const uint32_t y = s2fp8_squeeze(map, x);
    std::memcpy(out + i, &y, sizeof y);
  }
  report.amax = bits_float(amax);
  return report;
}

EncodeStats encode_run(const Table& kernels, const EncodeRun& run) {
  const EncodeStats stats = kernels.encode(run);
  return std::isnan(stats.amax) ? reference_encode(run) : stats;
}

}  // namespace ulp::kernels
