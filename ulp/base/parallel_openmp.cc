// Parallel loops on OpenMP: the same threads as the libraries beside us, so that they do not fight for cores.
#include <omp.h>

#include <algorithm>
#include <exception>

#include "ulp/base/parallel.h"

namespace ulp {

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int threads) { omp_set_num_threads(std::max(1, threads)); }

void parallel_for(size_t n, size_t grain, RangeBody body) {
  if (n == 0) return;
  grain = std::max<size_t>(grain, 1);
  const size_t grains = (n + grain - 1) / grain;
  const size_t parts = std::min(grains, static_cast<size_t>(thread_count()));
  if (parts <= 1) return body(0, n);
  std::exception_ptr error;
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (size_t part = 0; part < parts; ++part) {
    try {
      body(grains * part / parts * grain, std::min(n, grains * (part + 1) / parts * grain));
    } catch (...) {
#pragma omp critical(ulp_parallel_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ulp
