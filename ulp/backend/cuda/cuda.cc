#include "ulp/backend/cuda/cuda.h"

#include "ulp/backend/cuda/kernels.h"
#include "ulp/backend/cuda/optimizer/found_inf.h"
#include "ulp/backend/cuda/runtime/runtime.h"

namespace ulp {

const Backend& cuda_backend() {
  static const Backend backend = [] {
    Backend made = cuda::backend_named("cuda");
    made.device = &cuda::gpu();
    made.make_found_inf = cuda::make_found_inf;
    return made;
  }();
  return backend;
}

}  // namespace ulp
