#include "ulp/backend/cuda/families.h"

namespace ulp::cuda {

std::vector<KernelDef> own_kernels() {
  std::vector<KernelDef> made;
  for (const auto kernels :
       {source_kernels(), pipeline_kernels(), move_kernels(), pool_kernels(), loss_kernels(), norm_kernels(),
        depthwise_kernels(), plain_kernels(), update_kernels()}) {
    made.insert(made.end(), kernels.begin(), kernels.end());
  }
  return made;
}

}  // namespace ulp::cuda
