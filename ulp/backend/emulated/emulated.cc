#include "ulp/backend/emulated/emulated.h"

#include "ulp/backend/cuda/families.h"
#include "ulp/backend/cuda/library.h"

namespace ulp {

const Backend& emulated_backend() {
  static const Backend backend = [] {
    Backend made{"emulated", cuda::library_kernels(), true};
    made.merges = true;
    const std::vector<KernelDef> own = cuda::own_kernels();
    made.kernels.insert(made.kernels.end(), own.begin(), own.end());
    return made;
  }();
  return backend;
}

}  // namespace ulp
