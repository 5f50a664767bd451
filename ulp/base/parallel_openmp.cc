// Loops on OpenMP: the same threads as the libraries beside us, so that they do not fight for
// cores.
#include <omp.h>

#include <algorithm>

#include "ulp/base/parallel_backend.h"

namespace ulp {

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int threads) { omp_set_num_threads(std::max(1, threads)); }

void run_parts(size_t parts, RangeBody body) {
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (size_t part = 0; part < parts; ++part) body(part, part + 1);
}

}  // namespace ulp
