#include "ulp/backend/cuda/cuda.h"

#include "ulp/backend/cuda/families.h"
#include "ulp/backend/cuda/judge.h"
#include "ulp/backend/cuda/resident.h"
#include "ulp/backend/cuda/runtime.h"

namespace ulp {

const Backend& cuda_backend() {
  static const Backend backend = [] {
    Backend made{"cuda", cuda::all_kernels(), true};
    made.device = &cuda::gpu();
    made.make_judge = cuda::make_judge;
    made.fill_batch = cuda::fill_batch;
    made.merges = true;
    made.make_preparation = cuda::make_preparation;
    made.make_joined = cuda::make_joined;
    return made;
  }();
  return backend;
}

}  // namespace ulp
