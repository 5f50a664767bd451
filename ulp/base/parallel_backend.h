// What a loop runs on. CMake picks one of parallel_openmp.cc and parallel_threads.cc. Private to
// this folder.
#pragma once

#include <cstddef>

#include "ulp/base/parallel.h"

namespace ulp {

// Calls body(part, part + 1) for every part of [0, parts), each on a thread of its own where there
// are as many. The body throws nothing.
void run_parts(size_t parts, RangeBody body);

}  // namespace ulp
