#include "ulp/backend/cuda/optimizer/found_inf.h"

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/found_inf.h"

namespace ulp::cuda {
namespace {

static_assert(sizeof(FoundInfBatch) <= kMostParameters);

// One block.
__global__ __launch_bounds__(kThreads) void look(ULP_TABLE(FoundInfBatch) batch) {
  __shared__ uint32_t bad;
  if (threadIdx.x == 0) bad = 0;
  __syncthreads();
  const auto stats_of = [&](uint32_t i) -> const EncodeStats& { return batch.stats[batch.tensors[i]]; };
  if (gradients_overflowed(batch.sums[0], threadIdx.x, batch.count, blockDim.x, stats_of)) atomicOr(&bad, 1u);
  __syncthreads();
  if (threadIdx.x == 0 && (batch.first || bad != 0)) batch.state->skip = bad;
}

}  // namespace

void launch_found_inf(const FoundInfBatch& batch, Stream stream) {
  launch(look, {1, kThreads}, stream, batch);
}

}  // namespace ulp::cuda
