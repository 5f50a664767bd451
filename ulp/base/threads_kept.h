// A number of threads that holds for a while. The number is the calling thread's, as with OpenMP, and
// workspaces and the sums of libraries depend on it.
#pragma once

#include "ulp/base/parallel.h"

namespace ulp {

// Sets the number of threads, unless it is 0. When it goes, the number is as it was before, whatever
// it has been set to meanwhile.
class ThreadsKept {
 public:
  explicit ThreadsKept(int threads = 0) : threads_(thread_count()) {
    if (threads > 0) set_thread_count(threads);
  }
  ThreadsKept(const ThreadsKept&) = delete;
  ThreadsKept& operator=(const ThreadsKept&) = delete;
  ~ThreadsKept() { set_thread_count(threads_); }

 private:
  const int threads_;
};

}  // namespace ulp
