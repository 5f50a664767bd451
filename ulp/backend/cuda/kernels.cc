#include "ulp/backend/cuda/kernels.h"

#include "ulp/backend/cuda/library/library.h"

namespace ulp::cuda {

std::vector<KernelDef> all_kernels() {
  const std::vector<KernelDef> library = library_kernels();
  std::vector<KernelDef> made;
  for (const std::span<const KernelDef> kernels :
       {conv_igemm_kernels(), conv_wgrad_kernels(), pointwise_kernels(), conv_simt_kernels(),
        skinny_gemm_kernels(), std::span(library), source_kernels(), fused_elementwise_kernels(),
        move_kernels(), pool_kernels(), loss_kernels(), norm_kernels(), depthwise_kernels(),
        generic_product_kernels(), update_kernels()}) {
    made.insert(made.end(), kernels.begin(), kernels.end());
  }
  return made;
}

}  // namespace ulp::cuda
