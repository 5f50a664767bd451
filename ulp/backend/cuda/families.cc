#include "ulp/backend/cuda/families.h"

#include "ulp/backend/cuda/library.h"

namespace ulp::cuda {

std::vector<KernelDef> all_kernels() {
  const std::vector<KernelDef> library = library_kernels();
  std::vector<KernelDef> made;
  for (const std::span<const KernelDef> kernels :
       {stencil_kernels(), stencil_grad_kernels(), pointwise_kernels(), direct_kernels(), small_kernels(),
        std::span(library), source_kernels(), pipeline_kernels(), move_kernels(), pool_kernels(),
        loss_kernels(), norm_kernels(), depthwise_kernels(), plain_kernels(), update_kernels()}) {
    made.insert(made.end(), kernels.begin(), kernels.end());
  }
  return made;
}

}  // namespace ulp::cuda
