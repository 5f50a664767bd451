#include "ulp/backend/cuda/optimizer/grad_norm.h"

#include "ulp/backend/cuda/optimizer/update_device.h"

namespace ulp::cuda {
namespace {

static_assert(sizeof(SquaresBatch) <= kMostParameters && sizeof(NormBatch) <= kMostParameters);

// Adds the threads' numbers by a tree; thread 0 gets the sum.
__device__ inline double block_sum(double mine) {
  __shared__ double parts[kThreads];
  parts[threadIdx.x] = mine;
  __syncthreads();
  for (uint32_t half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + half];
    __syncthreads();
  }
  return parts[0];
}

__global__ __launch_bounds__(kThreads) void sum_spans(ULP_TABLE(SquaresBatch) batch) {
  const uint32_t which = tensor_of_block(batch);
  const SquaresTensor& tensor = batch.tensors[which];
  StoredView view = batch.formats[tensor.format];
  view.codes = tensor.codes;
  view.elements = tensor.elements;
  view.side = reinterpret_cast<uint32_t*>(side_of(view.codes, tensor.elements, view.bits));
  const uint64_t begin = uint64_t{blockIdx.x - batch.first_block[which]} * kSquaresSpan;
  const uint64_t end = begin + kSquaresSpan < tensor.elements ? begin + kSquaresSpan : tensor.elements;
  double sum = 0;
  for (uint64_t group = begin / kGroup + threadIdx.x; group * kGroup < end; group += blockDim.x) {
    float x[8];  // 0 beyond the end
    load_stored(view, group, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += static_cast<double>(x[i]) * x[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) batch.sums[blockIdx.x] = sum;
}

// One block per tensor.
__global__ __launch_bounds__(kThreads) void add_spans(ULP_TABLE(SquaresBatch) batch) {
  double sum = 0;
  for (uint32_t i = batch.first_block[blockIdx.x] + threadIdx.x; i < batch.first_block[blockIdx.x + 1];
       i += blockDim.x) {
    sum += batch.sums[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *batch.tensors[blockIdx.x].out = sum;
}

// Adds in order. All threads load, so that no thread waits for each number in turn.
__global__ __launch_bounds__(kThreads) void add_tensors(ULP_TABLE(NormBatch) batch) {
  __shared__ double squares[kNormTensors];
  for (uint32_t i = threadIdx.x; i < batch.count; i += blockDim.x) squares[i] = *batch.squares[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = batch.first ? 0 : *batch.sum;
  for (uint32_t i = 0; i < batch.count; ++i) sum += squares[i];
  if (batch.out == nullptr) {
    *batch.sum = sum;
    return;
  }
  const NormAndFactor made = norm_and_factor(sum, batch.state->update.grad_scale, batch.max_norm);
  batch.out[0] = made.norm;
  batch.out[1] = made.factor;
}

}  // namespace

void sum_squares(const SquaresBatch& batch, Stream stream) {
  if (batch.first_block[batch.count] > 0)
    launch(sum_spans, {batch.first_block[batch.count], kThreads}, stream, batch);
  launch(add_spans, {batch.count, kThreads}, stream, batch);
}

void add_norm(const NormBatch& batch, Stream stream) { launch(add_tensors, {1, kThreads}, stream, batch); }

}  // namespace ulp::cuda
