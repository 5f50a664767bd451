#include "ulp/base/parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "ulp/base/parallel_backend.h"

namespace ulp {

void parallel_for(size_t n, size_t grain, RangeBody body) {
  if (n == 0) return;
  grain = std::max<size_t>(grain, 1);
  const size_t grains = (n + grain - 1) / grain;
  const size_t parts = std::min(grains, static_cast<size_t>(thread_count()));
  if (parts <= 1) return body(0, n);
  std::exception_ptr error;
  std::mutex error_lock;
  run_parts(parts, [&](size_t part, size_t) {
    try {
      body(grains * part / parts * grain, std::min(n, grains * (part + 1) / parts * grain));
    } catch (...) {
      const std::lock_guard guard(error_lock);
      error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace ulp
