#include "ulp/backend/cuda/igemm/conv_igemm_kernel.h"

namespace ulp::cuda {

void start_bf16_from_8(const CUtensorMap& map, const IgemmCall& call, Stream stream) {
  start_channels<OperandFeed::bf16_from_8>(map, call, stream);
}

}  // namespace ulp::cuda
