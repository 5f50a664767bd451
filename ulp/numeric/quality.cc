#include "ulp/numeric/quality.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"

namespace ulp {
namespace {

struct Sums {
  uint64_t count = 0, nonzero = 0;
  double signal = 0, error = 0, relative = 0;
};

Sums sum_block(const float* original, const float* restored, size_t n) {
  Sums sums;
  for (size_t i = 0; i < n; ++i) {
    const double x = original[i];
    if (!std::isfinite(x)) continue;
    const double error = static_cast<double>(restored[i]) - x;
    ++sums.count;
    sums.signal += x * x;
    sums.error += error * error;
    if (x != 0) {
      ++sums.nonzero;
      sums.relative += std::fabs(error / x);
    }
  }
  return sums;
}

}  // namespace

Quality compare(std::span<const float> original, std::span<const float> restored) {
  if (original.size() != restored.size()) {
    fail("quality", "compared arrays must be of one size, got {} and {}", original.size(), restored.size());
  }
  constexpr size_t kBlock = size_t{1} << 16;
  std::vector<Sums> blocks((original.size() + kBlock - 1) / kBlock);
  parallel_for(original.size(), kBlock, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kBlock) {
      blocks[at / kBlock] = sum_block(original.data() + at, restored.data() + at, std::min(kBlock, end - at));
    }
  });
  Sums all;
  for (const Sums& block : blocks) {
    all.count += block.count;
    all.signal += block.signal;
    all.error += block.error;
    all.nonzero += block.nonzero;
    all.relative += block.relative;
  }
  Quality quality;
  quality.compared = all.count;
  quality.mse = all.count > 0 ? all.error / static_cast<double>(all.count) : 0;
  quality.snr_db = 10 * std::log10(all.signal / all.error);
  quality.mean_relative = all.nonzero > 0 ? all.relative / static_cast<double>(all.nonzero) : 0;
  return quality;
}

}  // namespace ulp
