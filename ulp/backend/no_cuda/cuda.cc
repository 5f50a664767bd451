// Stands in for the CUDA backend in builds without it.
#include "ulp/backend/cuda/cuda.h"

#include "ulp/base/error.h"

namespace ulp {

const Backend& cuda_backend() {
  fail("device",
       "this ulp was built without CUDA: build it with the cuda preset (make cuda), or use --device cpu");
}

}  // namespace ulp
