// Device code that the optimizer kernels share. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/optimizer/update.h"
#include "ulp/backend/update_scalars.h"

namespace ulp::cuda {

static_assert(sizeof(UpdateBatch) <= kMostParameters);

template <typename Optimizer>
__device__ inline const Optimizer& constants_of(const UpdateRecipe& recipe) {
  return *reinterpret_cast<const Optimizer*>(recipe.optimizer.bytes);
}

// A block's tensor, and which of its chunks the block takes.
struct UpdatePlace {
  uint32_t tensor;
  uint64_t first, end;
};

// For a table with `first_block` and `count`: the last tensor that begins at this block or before
// it.
template <typename Table>
__device__ inline uint32_t tensor_of_block(const Table& table) {
  uint32_t low = 0, high = table.count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (table.first_block[middle] <= blockIdx.x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Elements that a step goes through: those of the gradient.
ULP_HD inline uint64_t elements_of(const UpdateTensor& tensor) {
  return tensor.rows == nullptr ? tensor.elements : uint64_t{tensor.row_count} * tensor.row_groups * kGroup;
}

__device__ inline UpdatePlace place_of(const UpdateBatch& batch) {
  UpdatePlace place{tensor_of_block(batch), 0, 0};
  const uint64_t chunks = (elements_of(batch.tensors[place.tensor]) + kUpdateChunk - 1) / kUpdateChunk;
  place.first = uint64_t{blockIdx.x - batch.first_block[place.tensor]} * batch.chunks;
  place.end = place.first + batch.chunks < chunks ? place.first + batch.chunks : chunks;
  return place;
}

__device__ inline UpdateScalars scalars_of(const UpdateBatch& batch, const UpdateRecipe& recipe) {
  return parameter_scalars(batch.state->update, batch.norm == nullptr ? 1.0f : batch.norm[1],
                           recipe.lr_factor);
}

// Address of the data stored after codes of `bits` bits.
__device__ inline uint8_t* side_of(uint8_t* codes, uint64_t elements, uint32_t bits) {
  const uint64_t bytes = (elements * bits + 7) / 8;
  return codes + (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

__device__ inline EncodeStats* stats_of(const UpdateBatch& batch, const UpdateTensor& tensor, int which) {
  return tensor.stats[which] < 0 ? nullptr : batch.stats + tensor.stats[which];
}

// The updates that one thread counted.
struct UpdateCount {
  uint32_t updates = 0, cancelled = 0;
};

// Like report() of codec.h.
__device__ inline void report(const UpdateCount& mine, UpdateCounts* counts) {
  if (counts == nullptr) return;
  __shared__ uint32_t warps[2][32];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = blockDim.x / 32;
  const uint32_t updates = warp_sum(mine.updates), cancelled = warp_sum(mine.cancelled);
  if (lane == 0) {
    warps[0][warp] = updates;
    warps[1][warp] = cancelled;
  }
  __syncthreads();
  if (warp == 0) {
    const uint32_t all = warp_sum(lane < count ? warps[0][lane] : 0),
                   lost = warp_sum(lane < count ? warps[1][lane] : 0);
    if (lane == 0) {
      if (all != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(&counts->updates),
                  static_cast<unsigned long long>(all));
      if (lost != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(&counts->cancelled),
                  static_cast<unsigned long long>(lost));
    }
  }
  __syncthreads();
}

__device__ inline UpdateCounts* counts_of(const UpdateBatch& batch, const UpdateTensor& tensor) {
  return batch.updates == nullptr || tensor.updates < 0 ? nullptr : batch.updates + tensor.updates;
}

}  // namespace ulp::cuda
