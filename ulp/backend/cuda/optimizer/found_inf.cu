#include "ulp/backend/cuda/optimizer/found_inf.h"

#include "ulp/backend/cuda/access/codec.h"

namespace ulp::cuda {
namespace {

static_assert(sizeof(FoundInfBatch) <= kMostParameters);

// One block.
__global__ __launch_bounds__(kThreads) void look(ULP_TABLE(FoundInfBatch) batch) {
  __shared__ uint32_t bad;
  if (threadIdx.x == 0) bad = (float_bits(batch.sums[0]) & 0x7FFFFFFFu) >= 0x7F800000u ? 1 : 0;
  __syncthreads();
  uint32_t mine = 0;
  for (uint32_t i = threadIdx.x; i < batch.count; i += blockDim.x) {
    const EncodeStats& stats = batch.stats[batch.tensors[i]];
    mine |= stats.overflow > 0 || stats.nan > 0 ? 1 : 0;
  }
  if (mine != 0) atomicOr(&bad, 1u);
  __syncthreads();
  if (threadIdx.x == 0 && (batch.first || bad != 0)) batch.state->skip = bad;
}

}  // namespace

void judge(const FoundInfBatch& batch, Stream stream) { launch(look, {1, kThreads}, stream, batch); }

}  // namespace ulp::cuda
