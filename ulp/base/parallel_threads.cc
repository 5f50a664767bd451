// Loops on plain threads, for builds in which OpenMP's runtime would hide races from the thread
// sanitizer (it is not instrumented). Threads start and end with each loop.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "ulp/base/parallel_backend.h"

namespace ulp {
namespace {

int default_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::atomic<int> threads_in_use{default_threads()};

}  // namespace

int thread_count() { return threads_in_use; }

void set_thread_count(int threads) { threads_in_use = std::max(1, threads); }

void start_threads() {}

void run_parts(size_t parts, RangeBody body) {
  std::vector<std::jthread> workers;
  workers.reserve(parts - 1);
  for (size_t part = 1; part < parts; ++part) workers.emplace_back([=] { body(part, part + 1); });
  body(0, 1);
}

}  // namespace ulp
