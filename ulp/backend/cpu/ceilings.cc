#include "ulp/backend/cpu/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <dnnl.hpp>
#include <functional>
#include <limits>
#include <vector>

#include "ulp/base/parallel.h"

namespace ulp {
namespace {

constexpr int kRounds = 9;

double best_seconds(const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

Ceilings cpu_ceilings() {
  Ceilings ceilings;
  constexpr size_t kBytes = size_t{128} << 20;
  {
    std::vector<uint8_t> from(kBytes, 1), to(kBytes, 2);
    const double seconds = best_seconds([&] {
      parallel_for(kBytes, size_t{1} << 20, [&](size_t begin, size_t end) {
        std::memcpy(to.data() + begin, from.data() + begin, end - begin);
      });
    });
    ceilings.copy_gbs = 2e-9 * static_cast<double>(kBytes) / seconds;
  }
  constexpr int64_t kSide = 1024;
  // Ordinary numbers: subnormals would run at another speed.
  std::vector<float> a(kSide * kSide, 0.5f), b(kSide * kSide, 0.25f), c(kSide * kSide);
  const double seconds = best_seconds([&] {
    dnnl_sgemm('N', 'N', kSide, kSide, kSide, 1, a.data(), kSide, b.data(), kSide, 0, c.data(), kSide);
  });
  ceilings.product_tflops = 2e-12 * static_cast<double>(kSide * kSide * kSide) / seconds;
  ceilings.how =
      fmt::format("copy of {} MiB; oneDNN's sgemm, fp32, {}x{}x{}; {} thread{}, best of {}", kBytes >> 20,
                  kSide, kSide, kSide, thread_count(), thread_count() == 1 ? "" : "s", kRounds);
  return ceilings;
}

}  // namespace ulp
