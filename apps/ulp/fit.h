// What asks for more memory than any machine has.
#pragma once

#include <new>

#include "ulp/base/error.h"

namespace ulp {

// Does what only sizes that were given on the command line can make too large, so that running out
// of memory is their fault.
template <typename Work>
auto that_must_fit(const char* part, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    fail(part,
         "this does not fit into the memory of this machine: take a smaller batch, width or "
         "image, or fewer classes");
  }
}

}  // namespace ulp
