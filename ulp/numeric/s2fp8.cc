#include "ulp/numeric/s2fp8.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "ulp/numeric/codec.h"
#include "ulp/numeric/kernels.h"
#include "ulp/numeric/runs.h"

namespace ulp {
namespace {

// From so many elements on, finding the borders of codes (two microseconds of work) takes less time
// than the logarithms and powers that it saves.
constexpr size_t kBordersFrom = 4096;

const CodecSpec& e5m2() {
  static const CodecSpec spec = make_spec(parse_format("e5m2"), Overflow::saturate);
  return spec;
}

using CodeTable = std::array<uint32_t, kernels::kS2fp8Codes>;

// log2|Y| to the code of Y. An overflow is one more than the largest.
uint32_t code_of(float t) {
  const Encoded made = encode_scalar(e5m2(), Round::nearest_even, s2fp8_power(t), 0);
  return made.event == RangeEvent::overflow ? e5m2().max_code + 1 : made.code;
}

}  // namespace

// Powers next to each other may be out of order, being rounded, but no code is: tests/power_test.cc
// tries every argument of a power.
const std::array<float, kernels::kS2fp8Codes>& kernels::s2fp8_starts() {
  static const auto starts = [] {
    std::array<float, kernels::kS2fp8Codes> found;
    found.fill(std::numeric_limits<float>::infinity());
    found[0] = -found[0];
    // Patterns in the order of their numbers.
    const auto number = [](int64_t place) {
      const auto bits = static_cast<uint32_t>(place < 0 ? -place : place);
      return bits_float(place < 0 ? bits | 0x80000000u : bits);
    };
    for (uint32_t code = 1; code <= e5m2().max_code + 1; ++code) {
      int64_t low = -int64_t{float_bits(-kS2fp8Lowest)}, high = float_bits(kS2fp8Highest);
      while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (code_of(number(middle)) >= code ? high : low) = middle;
      }
      found[code] = number(high);
    }
    return found;
  }();
  return starts;
}

namespace {

kernels::S2fp8Survey survey(std::span<const float> in) {
  const kernels::Table& table = kernels::table();
  kernels::S2fp8Survey all;
  std::mutex merging;
  parallel_for(in.size(), kGrainRuns * kernels::kRun, [&](size_t begin, size_t end) {
    const kernels::S2fp8Survey mine = table.survey(in.data() + begin, end - begin);
    const std::lock_guard lock(merging);
    all.merge(mine);
  });
  return all;
}

void encode_nans(const float* in, size_t n, uint8_t* codes) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t x;
    std::memcpy(&x, in + i, sizeof x);
    if ((x & 0x7FFFFFFFu) > 0x7F800000u)
      codes[i] = static_cast<uint8_t>(encode_scalar(e5m2(), Round::nearest_even, x, 0).code);
  }
}

// Writes codes and returns how many numbers became zero that were not.
uint64_t write_codes(const S2fp8Map& map, const kernels::S2fp8Survey& seen, std::span<const float> in,
                     std::span<uint8_t> codes, ExponentHistogram* histogram) {
  const kernels::Table& table = kernels::table();
  kernels::S2fp8Borders borders;
  const auto tabulate = [&] {
    if (table.encode_by_borders == nullptr || in.size() < kBordersFrom) return false;
    table.find_borders(map, kernels::s2fp8_starts().data(), borders);
    return kernels::cut_buckets(borders);
  };
  // Numbers of a range that buckets cannot tell apart are squeezed as well.
  if (!tabulate()) {
    return encode_runs(in, histogram,
                       [&](size_t begin, size_t n) {
                         alignas(64) float squeezed[kernels::kRun];
                         table.squeeze(map, in.data() + begin, n, squeezed);
                         return kernels::encode_run(table, {&e5m2(), Round::nearest_even, squeezed, n,
                                                            codes.data() + begin, 1, nullptr});
                       })
        .underflow;
  }
  const EncodeStats all = encode_runs(in, histogram, [&](size_t begin, size_t n) {
    EncodeStats run;
    run.underflow = table.encode_by_borders(borders, in.data() + begin, n, codes.data() + begin);
    if (seen.nan > 0) encode_nans(in.data() + begin, n, codes.data() + begin);
    return run;
  });
  const uint64_t zeros = in.size() - seen.logs.count - seen.nan;
  return all.underflow - zeros;
}

}  // namespace

EncodeStats s2fp8_encode(std::span<const float> in, std::span<uint8_t> codes, S2fp8Stats& stats,
                         ExponentHistogram* histogram) {
  if (codes.size() < in.size()) {
    fail("s2fp8", "{} numbers need {} bytes, the output has {}", in.size(), in.size(), codes.size());
  }
  if (in.size() > kS2fp8MaxElements) fail("s2fp8", "a tensor has at most 2^33 elements, got {}", in.size());
  const kernels::S2fp8Survey seen = survey(in);
  stats = s2fp8_stats(seen.logs);
  EncodeStats report;
  report.underflow = write_codes(s2fp8_map(stats), seen, in, codes, histogram);
  // Y itself never overflows: what counts is that an infinity was brought down.
  report.overflow = seen.infinite;
  report.nan = seen.nan;
  report.amax = bits_float(seen.most);
  return report;
}

void s2fp8_decode(std::span<const uint8_t> codes, const S2fp8Stats& stats, std::span<float> out) {
  if (codes.size() < out.size()) {
    fail("s2fp8", "{} numbers take {} bytes, the input has {}", out.size(), out.size(), codes.size());
  }
  // Statistics that no tensor has (from a damaged file, say) would send the arithmetic out of
  // range.
  const float mu = -stats.beta / stats.alpha;
  if (!(stats.alpha >= kS2fp8MinAlpha && stats.alpha <= kS2fp8MaxAlpha && std::fabs(mu) <= 150)) {
    fail("s2fp8",
         "alpha must be in [15/278, 1024] and -beta / alpha in [-150, 150], got alpha {} and beta {}",
         stats.alpha, stats.beta);
  }
  // There are 256 codes, so 128 powers.
  static const auto magnitudes = [] {
    CodeTable made;
    for (uint32_t code = 0; code < made.size(); ++code) made[code] = decode_scalar(e5m2(), code);
    return made;
  }();
  alignas(64) CodeTable value = magnitudes;
  const kernels::Table& table = kernels::table();
  table.restore(s2fp8_map(stats), value.data());
  parallel_for(out.size(), kGrainRuns * kernels::kRun, [&](size_t begin, size_t end) {
    table.look_up(value.data(), codes.data() + begin, end - begin, out.data() + begin);
  });
}

}  // namespace ulp
