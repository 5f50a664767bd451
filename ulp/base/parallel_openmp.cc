// Loops on OpenMP: the same threads as the libraries beside us, so that they do not fight for
// cores.
#include <omp.h>

#include <algorithm>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/parallel_backend.h"

namespace ulp {
namespace {

// Of the team of the calling thread: each has one of its own.
thread_local int started = 1;

// OpenMP's runtime ends the program where it cannot start a thread. So as many are started here
// first, all at once.
void try_threads(int count) {
  std::latch all(1);
  std::vector<std::jthread> threads;
  const auto release = [&] { all.count_down(); };
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&all] { all.wait(); });
  } catch (const std::system_error& error) {
    release();
    threads.clear();  // before what they wait for is gone
    fail("threads",
         "cannot start {} threads ({}): there is too little memory, or a limit (ulimit -u, ulimit -v): "
         "take fewer --threads",
         count + 1, error.code().message());
  } catch (...) {
    release();
    threads.clear();
    throw;
  }
  release();
}

}  // namespace

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int threads) { omp_set_num_threads(std::max(1, threads)); }

void start_threads() {
  const int threads = thread_count();
  if (threads <= started || omp_in_parallel() != 0) return;
  try_threads(threads - 1);
  started = threads;
#pragma omp parallel num_threads(threads)
  {}
}

void run_parts(size_t parts, RangeBody body) {
  start_threads();
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (size_t part = 0; part < parts; ++part) body(part, part + 1);
}

}  // namespace ulp
