// Parallel loops. A loop is cut at multiples of a grain, so a result that is kept per grain is the
// same on any number of threads.
#pragma once

#include <cstddef>

namespace ulp {

// Threads that loops may use, at least 1. From the start: the processors available, or with OpenMP
// what OMP_NUM_THREADS says.
int thread_count();
void set_thread_count(int threads);
// Starts the threads that the calling thread's loops will use, those of libraries beside us too. Where
// the system has no room for them this is an Error; later a library would end the program.
void start_threads();

// A borrowed callable: two words, no allocation. Valid while the callable lives.
class RangeBody {
 public:
  template <typename F>
  RangeBody(const F& f)  // NOLINT(google-explicit-constructor): a lambda converts at the call
      : object_(&f), call_([](const void* object, size_t begin, size_t end) {
          (*static_cast<const F*>(object))(begin, end);
        }) {}
  void operator()(size_t begin, size_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void*, size_t, size_t);
};

// Calls body(begin, end) for consecutive ranges that cover [0, n). Every range but the last is a
// multiple of `grain` (at least 1), and starts at one; a thread gets at least one grain. An
// exception in the body reaches the caller.
void parallel_for(size_t n, size_t grain, RangeBody body);

}  // namespace ulp
