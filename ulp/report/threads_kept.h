// Plans of a run are made for as many threads as it had, since workspaces depend on them.
#pragma once

#include "ulp/base/parallel.h"

namespace ulp {

// Whatever the number of threads is set to while it lives, afterwards it is as before.
class ThreadsKept {
 public:
  ThreadsKept() : threads_(thread_count()) {}
  ThreadsKept(const ThreadsKept&) = delete;
  ThreadsKept& operator=(const ThreadsKept&) = delete;
  ~ThreadsKept() { set_thread_count(threads_); }

 private:
  const int threads_;
};

}  // namespace ulp
