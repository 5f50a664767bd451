// Running statistics of batch norm, and layer norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The running statistics of one batch norm and a batch's contribution (ulp/backend/elementwise.h),
// all fp32.
struct Track {
  const float *mean, *variance;  // of the batch
  float *running_mean, *running_variance;
  uint32_t channels;
  float keep, momentum, unbias;
};
inline constexpr size_t kMostTracks = 64;

// Updates `count` batch norms, kMostTracks per launch.
void batch_track(const Track* tracks, size_t count, Stream stream);

// One running statistic with a storage format of its own: read, updated and written in place. `now`
// is the batch's value.
void track_stored(const StoredView& running, const WriteView& out, const float* now, const Track& factors,
                  bool unbiased, const StepState* state, Stream stream);

// Layer norm of rows of `channels` elements. Sums are double. The mean and variance that are
// written are rounded; the output is computed from the unrounded ones. Per-channel and per-row
// tensors are fp32.
struct LayerShape {
  uint64_t rows;
  uint32_t channels;
  double epsilon;
};
void layer_norm(const LayerShape& shape, const StoredView& x, const float* gamma, const float* beta,
                const WriteView& out, const WriteView& mean, const WriteView& variance,
                const StepState* state, Stream stream);
void layer_norm_grad(const LayerShape& shape, const StoredView& dout, const StoredView& x, const float* gamma,
                     const float* mean, const float* variance, const WriteView& dx, const StepState* state,
                     Stream stream);
void layer_norm_grad_weight(const LayerShape& shape, const StoredView& dout, const StoredView& x,
                            const float* mean, const float* variance, const WriteView& dgamma,
                            const WriteView& dbeta, const StepState* state, Stream stream);

}  // namespace ulp::cuda
