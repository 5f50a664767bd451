#include "ulp/backend/cuda/stencil_kernel.h"

namespace ulp::cuda {

void start_half_from_8(const CUtensorMap& map, const StencilCall& call, Stream stream) {
  start_channels<Feed::half_from_8>(map, call, stream);
}

}  // namespace ulp::cuda
