// Running statistics of batch norm, and layer norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The running statistics of one batch norm and what a batch adds to them (ulp/backend/elementwise.h), all fp32.
struct Track {
  const float *mean, *variance;  // of the batch
  float *running_mean, *running_variance;
  uint32_t channels;
  float keep, momentum, unbias;
};
inline constexpr size_t kMostTracks = 64;

// Of so many batch norms, in one launch for each kMostTracks of them.
void batch_track(const Track* tracks, size_t count, Stream stream);

// One running statistic that is stored in a format of its own: read, moved and written where it was. `now` is the batch's.
void track_stored(const StoredView& running, const WriteView& out, const float* now, const Track& factors,
                  bool unbiased, const StepState* state, Stream stream);

// Rows of `channels` elements. Sums are double; the mean and variance that are written are rounded, those that the output is made
// of are not. What belongs to channels or to rows is fp32.
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
