#include "ulp/backend/emulated/emulated.h"

#include "ulp/backend/cuda/kernels.h"

namespace ulp {

const Backend& emulated_backend() {
  static const Backend backend = cuda::backend_named("emulated");
  return backend;
}

}  // namespace ulp
