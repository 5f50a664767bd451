#include "ulp/backend/recorder.h"

#include <bit>
#include <mutex>

#include "ulp/base/parallel.h"

namespace ulp {
namespace {

constexpr size_t kGrain = 1 << 14;

// pattern(i) is what is counted of element i.
template <typename Pattern>
ExponentHistogram counted(size_t n, const Pattern& pattern) {
  ExponentHistogram all;
  std::mutex merging;
  parallel_for(n, kGrain, [&](size_t begin, size_t end) {
    ExponentHistogram mine;
    for (size_t i = begin; i < end; ++i) mine.add(pattern(i));
    const std::lock_guard lock(merging);
    all.merge(mine);
  });
  return all;
}

// One lock for all recorders: a step that is recorded is rare.
std::mutex& recording() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void Recorder::add(TensorId id, std::span<const float> x) {
  const ExponentHistogram more = counted(x.size(), [&](size_t i) { return std::bit_cast<uint32_t>(x[i]); });
  const std::lock_guard lock(recording());
  records_[index(id)].x.merge(more);
}

void Recorder::add_shifted(TensorId id, std::span<const float> x, const S2fp8Stats& stats) {
  const S2fp8Map map = s2fp8_map(stats);
  const ExponentHistogram more =
      counted(x.size(), [&](size_t i) { return s2fp8_squeeze(map, std::bit_cast<uint32_t>(x[i])); });
  const std::lock_guard lock(recording());
  records_[index(id)].y.merge(more);
  records_[index(id)].shifted = stats;
}

}  // namespace ulp
