#include "ulp/numeric/s2fp8.h"

#include <array>
#include <cmath>
#include <cstring>
#include <mutex>

#include "ulp/numeric/codec.h"
#include "ulp/numeric/kernels.h"
#include "ulp/numeric/runs.h"

namespace ulp {

EncodeStats s2fp8_encode(std::span<const float> in, std::span<uint8_t> codes, S2fp8Stats& stats,
                         ExponentHistogram* histogram) {
  if (codes.size() < in.size()) {
    fail("s2fp8", "{} numbers need {} bytes, the output has {}", in.size(), in.size(), codes.size());
  }
  if (in.size() > kS2fp8MaxElements) fail("s2fp8", "a tensor has at most 2^33 elements, got {}", in.size());
  const kernels::Table& table = kernels::table();
  LogSums sums;
  std::mutex merging;
  parallel_for(in.size(), kGrainRuns * kernels::kRun, [&](size_t begin, size_t end) {
    const LogSums mine = table.log_sums(in.data() + begin, end - begin);
    const std::lock_guard lock(merging);
    sums.merge(mine);
  });
  stats = s2fp8_stats(sums);

  const S2fp8Map map = s2fp8_map(stats);
  const CodecSpec e5m2 = make_spec(parse_format("e5m2"), Overflow::saturate);
  return encode_runs(in, histogram, [&](size_t begin, size_t n) {
    alignas(64) float squeezed[kernels::kRun];
    const kernels::SqueezeReport report = table.squeeze(map, in.data() + begin, n, squeezed);
    EncodeStats run = kernels::encode_run(
        table, {&e5m2, Round::nearest_even, squeezed, n, codes.data() + begin, 1, nullptr});
    // Y itself never overflows: what counts is that an infinity was brought down.
    run.overflow = report.infinite;
    run.amax = report.amax;
    return run;
  });
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
  const S2fp8Map map = s2fp8_map(stats);
  const CodecSpec e5m2 = make_spec(parse_format("e5m2"), Overflow::saturate);
  std::array<uint32_t, 256> value;
  for (uint32_t code = 0; code < 128; ++code) {
    value[code] = s2fp8_restore(map, decode_scalar(e5m2, code));
    value[code | 0x80] = value[code] | 0x80000000u;
  }
  parallel_for(out.size(), kGrainRuns * kernels::kRun, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) std::memcpy(&out[i], &value[codes[i]], sizeof(float));
  });
}

}  // namespace ulp
