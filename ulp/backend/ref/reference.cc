#include "ulp/backend/ref/reference.h"

#include "ulp/backend/ref/reference_task.h"

namespace ulp {

std::span<const KernelDef> reference_kernels() { return reference_backend().kernels; }

const Backend& reference_backend() {
  static const Backend backend = [] {
    Backend made{"ref", {}, false};
    for (const auto family :
         {ref::source_kernels, ref::elementwise_kernels, ref::conv_kernels, ref::matmul_kernels,
          ref::move_kernels, ref::norm_kernels, ref::pool_kernels, ref::loss_kernels, ref::update_kernels}) {
      const std::span<const KernelDef> kernels = family();
      made.kernels.insert(made.kernels.end(), kernels.begin(), kernels.end());
    }
    return made;
  }();
  return backend;
}

}  // namespace ulp
