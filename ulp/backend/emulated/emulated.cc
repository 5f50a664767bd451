#include "ulp/backend/emulated/emulated.h"

#include "ulp/backend/cuda/kernels.h"

namespace ulp {

const Backend& emulated_backend() {
  static const Backend backend = [] {
    Backend made{"emulated", cuda::all_kernels(), true};
    made.merges = true;
    made.make_preparation = cuda::make_preparation;
    made.make_merged = cuda::make_merged;
    return made;
  }();
  return backend;
}

}  // namespace ulp
