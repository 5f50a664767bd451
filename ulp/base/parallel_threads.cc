// Parallel loops on plain threads, for builds in which OpenMP's runtime would hide races from the thread
// sanitizer (it is not instrumented). Threads start and end with each loop.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "ulp/base/parallel.h"

namespace ulp {
namespace {

int default_threads() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  const int n = wanted ? std::atoi(wanted) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, n);
}

std::atomic<int> threads_in_use{default_threads()};

}  // namespace

int thread_count() { return threads_in_use; }

void set_thread_count(int threads) { threads_in_use = std::max(1, threads); }

void parallel_for(size_t n, size_t grain, RangeBody body) {
  if (n == 0) return;
  grain = std::max<size_t>(grain, 1);
  const size_t grains = (n + grain - 1) / grain;
  const size_t parts = std::min(grains, static_cast<size_t>(thread_count()));
  if (parts <= 1) return body(0, n);
  std::exception_ptr error;
  std::mutex error_lock;
  auto run = [&](size_t part) {
    try {
      body(grains * part / parts * grain, std::min(n, grains * (part + 1) / parts * grain));
    } catch (...) {
      const std::lock_guard guard(error_lock);
      error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> workers;
    for (size_t part = 1; part < parts; ++part) workers.emplace_back(run, part);
    run(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ulp
