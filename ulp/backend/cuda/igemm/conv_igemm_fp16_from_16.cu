#include "ulp/backend/cuda/igemm/conv_igemm_kernel.h"

namespace ulp::cuda {

void start_fp16_from_16(const CUtensorMap& map, const IgemmCall& call, Stream stream) {
  start_channels<OperandFeed::fp16_from_16>(map, call, stream);
}

}  // namespace ulp::cuda
