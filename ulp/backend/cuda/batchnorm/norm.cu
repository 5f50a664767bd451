#include "ulp/backend/cuda/batchnorm/norm.h"

#include "ulp/backend/cuda/access/rows.h"
#include "ulp/backend/elementwise.h"

namespace ulp::cuda {
namespace {

struct Tracks {
  Track track[kMostTracks];
};
static_assert(sizeof(Tracks) <= 4096);  // the parameter limit of every GPU

// One block per batch norm.
__global__ void track_all(Tracks tracks) {
  const Track& t = tracks.track[blockIdx.x];
  for (uint32_t c = threadIdx.x; c < t.channels; c += blockDim.x) {
    t.running_mean[c] = elementwise::batch_track(t.running_mean[c], t.mean[c], t.keep, t.momentum);
    t.running_variance[c] = elementwise::batch_track(
        t.running_variance[c], elementwise::Multiply::forward(t.variance[c], t.unbias), t.keep, t.momentum);
  }
}

// One thread per group.
__global__ void track_groups(StoredView running, WriteView out, const float* now, Track factors,
                             bool unbiased, const StepState* state) {
  RangeCount seen;
  const uint64_t group = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
  if (group < groups_of(running.elements)) {
    float x[8];
    load_stored(running, group, x);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      if (group * kGroup + i >= running.elements) continue;
      const float fresh = now[group * kGroup + i];
      x[i] = elementwise::batch_track(
          x[i], unbiased ? elementwise::Multiply::forward(fresh, factors.unbias) : fresh, factors.keep,
          factors.momentum);
    }
    store(out, *state, group, x, seen);
  }
  report(seen, out.stats);
}

struct Moments {
  double mean, inv;
};

__global__ void __launch_bounds__(kRowThreads)
    layer_norm_rows(LayerShape s, StoredView x, const float* gamma, const float* beta, WriteView out,
                    WriteView mean_out, WriteView variance_out, const StepState* state) {
  __shared__ Moments moments[kBlockRows];
  __shared__ float means[kBlockRows], variances[kBlockRows];
  RangeCount seen, seen_mean, seen_variance;
  const StoredView none;
  const double n = s.channels;
  for_rows(s.rows, [&](uint64_t octet, uint64_t row, bool there) {
    if (there) {
      const uint64_t first = row * s.channels;
      const double mean =
          warp_sum_of(s.channels, [&](uint64_t i) { return static_cast<double>(load_one(x, first + i)); }) /
          n;
      // First the mean, then the squares of the differences: no cancellation.
      const double variance = warp_sum_of(s.channels,
                                          [&](uint64_t i) {
                                            const double rest = load_one(x, first + i) - mean;
                                            return rest * rest;
                                          }) /
                              n;
      if (threadIdx.x % 32 == 0) {
        moments[threadIdx.x / 32] = {mean, 1 / sqrt(variance + s.epsilon)};
        means[threadIdx.x / 32] = rounded(mean);
        variances[threadIdx.x / 32] = rounded(variance);
      }
    }
    __syncthreads();
    write_rows(out, *state, octet, s.channels, x, none, seen,
               [&](uint32_t k, uint32_t c, float value, float) {
                 const Moments m = moments[k % kBlockRows];
                 return rounded((value - m.mean) * m.inv * gamma[c] + beta[c]);
               });
    if (threadIdx.x == 0) {
      write_octet(mean_out, *state, octet, means, seen_mean);
      write_octet(variance_out, *state, octet, variances, seen_variance);
    }
    __syncthreads();
  });
  report(seen, out.stats);
  report(seen_mean, mean_out.stats);
  report(seen_variance, variance_out.stats);
}

// With u = (x - mean) inv and g = dout gamma: dx = inv (g - mean(g) - u mean(g u)), means over the
// row.
struct GradMeans {
  double mean, inv, g, gu;
};

__global__ void __launch_bounds__(kRowThreads)
    layer_norm_grad_rows(LayerShape s, StoredView dout, StoredView x, const float* gamma, const float* mean,
                         const float* variance, WriteView dx, const StepState* state) {
  __shared__ GradMeans means[kBlockRows];
  RangeCount seen;
  const double n = s.channels;
  for_rows(s.rows, [&](uint64_t octet, uint64_t row, bool there) {
    if (there) {
      const uint64_t first = row * s.channels;
      const double m = mean[row], inv = 1 / sqrt(variance[row] + s.epsilon);
      const auto g = [&](uint64_t i) { return static_cast<double>(load_one(dout, first + i)) * gamma[i]; };
      const double sum = warp_sum_of(s.channels, g);
      const double product =
          warp_sum_of(s.channels, [&](uint64_t i) { return g(i) * (load_one(x, first + i) - m) * inv; });
      if (threadIdx.x % 32 == 0) means[threadIdx.x / 32] = {m, inv, sum / n, product / n};
    }
    __syncthreads();
    write_rows(dx, *state, octet, s.channels, dout, x, seen,
               [&](uint32_t k, uint32_t c, float grad, float value) {
                 const GradMeans row_means = means[k % kBlockRows];
                 const double g = static_cast<double>(grad) * gamma[c];
                 return rounded(row_means.inv *
                                (g - row_means.g - (value - row_means.mean) * row_means.inv * row_means.gu));
               });
    __syncthreads();
  });
  report(seen, dx.stats);
}

// One block per eight channels: its threads share the rows, and their sums are added in order.
constexpr uint32_t kRowShares = 32;

__global__ void __launch_bounds__(kRowShares* kGroup)
    layer_norm_weight_sums(LayerShape s, StoredView dout, StoredView x, const float* mean,
                           const float* variance, WriteView dgamma, WriteView dbeta, const StepState* state) {
  __shared__ double sums[2][kRowShares][kGroup];
  __shared__ float made[2][kGroup];
  RangeCount seen_gamma, seen_beta;
  const uint32_t c = threadIdx.x % kGroup, share = threadIdx.x / kGroup;
  for (uint64_t g = blockIdx.x; g < groups_of(s.channels); g += gridDim.x) {
    const uint64_t channel = g * kGroup + c;
    double product = 0, sum = 0;
    for (uint64_t row = share; channel < s.channels && row < s.rows; row += kRowShares) {
      const uint64_t i = row * s.channels + channel;
      const double d = load_one(dout, i);
      product += d * (static_cast<double>(load_one(x, i)) - mean[row]) / sqrt(variance[row] + s.epsilon);
      sum += d;
    }
    sums[0][share][c] = product;
    sums[1][share][c] = sum;
    __syncthreads();
    if (share < 2) {
      double total = 0;
      for (uint32_t k = 0; k < kRowShares; ++k) total += sums[share][k][c];
      made[share][c] = rounded(total);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      write_octet(dgamma, *state, g, made[0], seen_gamma);
      write_octet(dbeta, *state, g, made[1], seen_beta);
    }
  }
  report(seen_gamma, dgamma.stats);
  report(seen_beta, dbeta.stats);
}

}  // namespace

void batch_track(const Track* tracks, size_t count, Stream stream) {
  for (size_t first = 0; first < count; first += kMostTracks) {
    Tracks some{};
    const size_t here = count - first < kMostTracks ? count - first : kMostTracks;
    uint32_t most = 0;
    for (size_t i = 0; i < here; ++i) {
      some.track[i] = tracks[first + i];
      most = some.track[i].channels > most ? some.track[i].channels : most;
    }
    const uint32_t warps = (most + 31) / 32;
    launch(track_all, {static_cast<uint32_t>(here), 32 * (warps < 8 ? warps : 8)}, stream, some);
  }
}

void track_stored(const StoredView& running, const WriteView& out, const float* now, const Track& factors,
                  bool unbiased, const StepState* state, Stream stream) {
  const uint64_t groups = groups_of(running.elements);
  launch(track_groups, {static_cast<uint32_t>((groups + 63) / 64), 64}, stream, running, out, now, factors,
         unbiased, state);
}

void layer_norm(const LayerShape& shape, const StoredView& x, const float* gamma, const float* beta,
                const WriteView& out, const WriteView& mean, const WriteView& variance,
                const StepState* state, Stream stream) {
  launch(layer_norm_rows, grid_of_rows(shape.rows), stream, shape, x, gamma, beta, out, mean, variance,
         state);
}

void layer_norm_grad(const LayerShape& shape, const StoredView& dout, const StoredView& x, const float* gamma,
                     const float* mean, const float* variance, const WriteView& dx, const StepState* state,
                     Stream stream) {
  launch(layer_norm_grad_rows, grid_of_rows(shape.rows), stream, shape, dout, x, gamma, mean, variance, dx,
         state);
}

void layer_norm_grad_weight(const LayerShape& shape, const StoredView& dout, const StoredView& x,
                            const float* mean, const float* variance, const WriteView& dgamma,
                            const WriteView& dbeta, const StepState* state, Stream stream) {
  launch(layer_norm_weight_sums, {blocks_for(groups_of(shape.channels), 1), kRowShares * kGroup}, stream,
         shape, dout, x, mean, variance, dgamma, dbeta, state);
}

}  // namespace ulp::cuda
