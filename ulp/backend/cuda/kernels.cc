#include "ulp/backend/cuda/kernels.h"

#include "ulp/backend/cuda/library/library.h"

namespace ulp::cuda {

Backend backend_named(std::string_view name) {
  const std::vector<KernelDef> library = library_kernels();
  Backend made{name, {}, true};
  for (const std::span<const KernelDef> kernels :
       {conv_igemm_kernels(), conv_wgrad_kernels(), pointwise_kernels(), conv_simt_kernels(),
        skinny_gemm_kernels(), std::span(library), source_kernels(), fused_elementwise_kernels(),
        move_kernels(), broadcast_kernels(), pool_kernels(), loss_kernels(), norm_kernels(),
        depthwise_kernels(), generic_product_kernels(), update_kernels()}) {
    made.kernels.insert(made.kernels.end(), kernels.begin(), kernels.end());
  }
  made.merges = true;
  made.make_preparation = make_preparation;
  made.make_merged = make_merged;
  return made;
}

}  // namespace ulp::cuda
