#include "ulp/backend/cuda/ops/loss.h"

#include "ulp/backend/cuda/access/rows.h"
#include "ulp/backend/cuda/access/single.h"
#include "ulp/numeric/wide.h"

namespace ulp::cuda {
namespace {

constexpr double kNan = __builtin_nan("");

// `kShort`: tensors are read and written as single elements.
template <bool kShort>
__device__ inline float load_at(const StoredView& view, uint64_t i) {
  if constexpr (kShort) {
    return load_single(view, i);
  } else {
    return load_one(view, i);
  }
}

// The logarithm of a row's sum of e^x, in two parts. The largest x is factored out so that nothing
// overflows, and kept separately, because next to a large value the other part would vanish. A NaN
// in the row makes the sum NaN.
struct LogSum {
  double largest, rest;
  __device__ double log_p(float x) const { return (x - largest) - rest; }
};

template <bool kShort>
__device__ inline LogSum log_sum_exp(const StoredView& x, uint64_t first, uint32_t n) {
  float largest = -__builtin_inff();
  for (uint32_t i = threadIdx.x % 32; i < n; i += 32) {
    const float here = load_at<kShort>(x, first + i);
    largest = here > largest ? here : largest;
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, largest, mask);
    largest = other > largest ? other : largest;
  }
  const double top = largest;
  const double sum =
      warp_sum_of(n, [&](uint64_t i) { return exp_wide(load_at<kShort>(x, first + i) - top); });
  return {top, log_wide(sum)};
}

// Whether a row's label is a class.
__device__ inline bool is_class(int32_t label, uint32_t classes) {
  return label >= 0 && static_cast<uint32_t>(label) < classes;
}

// The facts of a row that its elements are computed from.
struct RowFacts {
  LogSum log_sum;
  double factor;  // a sum over the row, or the gradient of its loss
  int32_t label;
};

template <RowMap map, bool kShort>
__device__ inline RowFacts facts_of(const LossViews& v, uint64_t row) {
  const uint64_t first = row * v.width;
  RowFacts facts = {};
  if constexpr (map == RowMap::softmax || map == RowMap::log_softmax) {
    facts.log_sum = log_sum_exp<kShort>(v.a, first, v.width);
  } else if constexpr (map == RowMap::softmax_grad) {
    facts.factor = warp_sum_of(v.width, [&](uint64_t i) {
      return static_cast<double>(load_at<kShort>(v.a, first + i)) * load_at<kShort>(v.b, first + i);
    });
  } else if constexpr (map == RowMap::log_softmax_grad) {
    facts.factor = warp_sum_of(
        v.width, [&](uint64_t i) { return static_cast<double>(load_at<kShort>(v.a, first + i)); });
  } else {
    facts.label = v.labels[row];
    facts.factor = is_class(facts.label, v.width) ? load_at<kShort>(v.a, row) : kNan;
    if constexpr (map == RowMap::cross_entropy_grad) facts.log_sum = log_sum_exp<kShort>(v.b, first, v.width);
  }
  return facts;
}

template <RowMap map>
__device__ inline float value_of(const LossViews& v, const RowFacts& row, uint32_t column, float a, float b) {
  if constexpr (map == RowMap::softmax) return rounded(exp_wide(row.log_sum.log_p(a)));
  if constexpr (map == RowMap::log_softmax) return rounded(row.log_sum.log_p(a));
  if constexpr (map == RowMap::softmax_grad) return rounded(b * (a - row.factor));
  if constexpr (map == RowMap::log_softmax_grad) return rounded(a - exp_wide(b) * row.factor);
  const double weight = v.rest + (static_cast<int32_t>(column) == row.label ? v.top : 0);
  if constexpr (map == RowMap::nll_grad) return rounded(-row.factor * weight);
  return rounded(row.factor * (exp_wide(row.log_sum.log_p(b)) - weight));
}

template <RowMap map>
__global__ void __launch_bounds__(kRowThreads) map_all(LossViews v, WriteView out, const StepState* state) {
  __shared__ RowFacts facts[kBlockRows];
  RangeCount seen;
  // The loss's gradient has one value per row.
  constexpr bool kOfRows = map == RowMap::nll_grad || map == RowMap::cross_entropy_grad;
  const StoredView none, &same = kOfRows ? none : v.a;
  for_rows(v.rows, [&](uint64_t octet, uint64_t row, bool there) {
    if (there) {
      const RowFacts own = facts_of<map, false>(v, row);
      if (threadIdx.x % 32 == 0) facts[threadIdx.x / 32] = own;
    }
    __syncthreads();
    write_rows(out, *state, octet, v.width, same, v.b, seen,
               [&](uint32_t k, uint32_t column, float a, float b) {
                 return value_of<map>(v, facts[k % kBlockRows], column, a, b);
               });
    __syncthreads();
  });
  report(seen, out.stats);
}

// One warp per row; a lane has every 32nd element.
template <RowMap map>
__global__ void __launch_bounds__(kRowThreads)
    map_short(const __grid_constant__ LossViews v, const __grid_constant__ WriteView out,
              const StepState* state) {
  constexpr bool kReadsA = map != RowMap::nll_grad && map != RowMap::cross_entropy_grad;
  constexpr bool kReadsB = map != RowMap::softmax && map != RowMap::log_softmax && map != RowMap::nll_grad;
  RangeCount seen;
  for_rows(v.rows, [&](uint64_t, uint64_t row, bool there) {
    if (!there) return;
    const RowFacts facts = facts_of<map, true>(v, row);
#pragma unroll 1
    for (uint32_t column = threadIdx.x % 32; column < v.width; column += 32) {
      const uint64_t at = row * v.width + column;
      const float a = kReadsA ? load_single(v.a, at) : 0, b = kReadsB ? load_single(v.b, at) : 0;
      store_single(out, *state, at, value_of<map>(v, facts, column, a, b), seen);
    }
  });
  report(seen, out.stats);
}

// A class with zero weight is skipped: its logarithm may be infinite.
template <bool kShort>
__device__ inline double smoothed_loss(const LossViews& v, uint64_t row, const LogSum& log_sum) {
  const uint64_t first = row * v.width;
  const int32_t label = v.labels[row];
  if (!is_class(label, v.width)) return kNan;
  double loss = -v.top * log_sum.log_p(load_at<kShort>(v.a, first + static_cast<uint32_t>(label)));
  if (v.rest != 0)
    loss -= v.rest *
            warp_sum_of(v.width, [&](uint64_t i) { return log_sum.log_p(load_at<kShort>(v.a, first + i)); });
  return loss;
}

template <RowLoss loss>
__device__ inline double term(float x, float target) {
  if constexpr (loss == RowLoss::bce_with_logits) return log1p_exp(x) - static_cast<double>(x) * target;
  const double off = static_cast<double>(x) - target;
  return off * off;
}
template <RowLoss loss>
__device__ inline double slope(float x, float target) {
  if constexpr (loss == RowLoss::bce_with_logits) return static_cast<double>(sigmoid_near(x)) - target;
  return 2 * (static_cast<double>(x) - target);
}

template <RowLoss loss, bool kShort>
__device__ inline double loss_of(const LossViews& v, uint64_t row) {
  if constexpr (loss == RowLoss::nll) return smoothed_loss<kShort>(v, row, {0, 0});
  const uint64_t first = row * v.width;
  if constexpr (loss == RowLoss::cross_entropy)
    return smoothed_loss<kShort>(v, row, log_sum_exp<kShort>(v.a, first, v.width));
  return warp_sum_of(v.width,
                     [&](uint64_t i) {
                       return term<loss>(load_at<kShort>(v.a, first + i), load_at<kShort>(v.b, first + i));
                     }) /
         static_cast<double>(v.width);
}

template <RowLoss loss>
__global__ void __launch_bounds__(kRowThreads) sum_all(LossViews v, WriteView out, const StepState* state) {
  __shared__ float made[kBlockRows];
  RangeCount seen;
  for_rows(v.rows, [&](uint64_t octet, uint64_t row, bool there) {
    if (there) {
      const float own = rounded(loss_of<loss, false>(v, row));
      if (threadIdx.x % 32 == 0) made[threadIdx.x / 32] = own;
    }
    __syncthreads();
    if (threadIdx.x == 0) write_octet(out, *state, octet, made, seen);
    __syncthreads();
  });
  report(seen, out.stats);
}

template <RowLoss loss>
__global__ void __launch_bounds__(kRowThreads)
    sum_short(const __grid_constant__ LossViews v, const __grid_constant__ WriteView out,
              const StepState* state) {
  RangeCount seen;
  for_rows(v.rows, [&](uint64_t, uint64_t row, bool there) {
    if (!there) return;
    const float made = rounded(loss_of<loss, true>(v, row));
    if (threadIdx.x % 32 == 0) store_single(out, *state, row, made, seen);
  });
  report(seen, out.stats);
}

template <RowLoss loss>
__global__ void target_grads(StoredView dout, StoredView x, StoredView target, uint32_t width, WriteView out,
                             const StepState* state) {
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups_of(out.stored.elements);
       g += uint64_t{gridDim.x} * blockDim.x) {
    float grad[8] = {}, a[8], b[8], made[8];
    const Divided place = divide(g * kGroup, width);
    const uint32_t count = count_in(out.stored, g);
    // The rows that the group spans; usually one.
    uint64_t row = place.quotient;
    for (uint32_t i = 0, left = width - place.rest; i < count; left = width, ++row) {
      const float own = load_one(dout, row);
      for (; left > 0 && i < count; ++i, --left) set_at(grad, i, own);
    }
    load_stored(x, g, a);
    load_stored(target, g, b);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      made[i] = rounded(static_cast<double>(grad[i]) * slope<loss>(a[i], b[i]) / static_cast<double>(width));
    }
    store(out, *state, g, made, seen);
  }
  report(seen, out.stats);
}

constexpr uint32_t kCountThreads = 1024;

// One block: there are as many rows as a batch has examples. `team` lanes, a power of two, share a
// row.
template <bool kShort>
__global__ void __launch_bounds__(kCountThreads)
    count_right(const __grid_constant__ LossViews v, uint32_t team, const __grid_constant__ WriteView out,
                const StepState* state) {
  __shared__ double sums[kCountThreads / 32];
  __shared__ uint32_t counts[kCountThreads / 32];
  const uint32_t teams = kCountThreads / team, member = threadIdx.x % team;
  uint32_t right = 0;
  // All lanes loop equally often, because they exchange results.
  for (uint64_t first = 0; first < v.rows; first += teams) {
    const uint64_t row = first + threadIdx.x / team;
    const int32_t label = row < v.rows ? v.labels[row] : -1;
    int largest = is_class(label, v.width) ? 1 : 0;
    if (largest != 0) {
      const uint64_t start = row * v.width;
      const auto own = static_cast<uint32_t>(label);
      const float score = load_at<kShort>(v.a, start + own);
      for (uint32_t i = member; i < v.width; i += team) {
        const float other = load_at<kShort>(v.a, start + i);
        // A row with a NaN has no largest score; of equal scores the first wins.
        largest &= (i < own ? score > other : score >= other) ? 1 : 0;
      }
    }
    for (uint32_t mask = team / 2; mask > 0; mask /= 2)
      largest &= __shfl_xor_sync(0xFFFFFFFFu, largest, static_cast<int>(mask));
    right += member == 0 ? static_cast<uint32_t>(largest) : 0;
  }
  double loss = 0;
  for (uint64_t i = threadIdx.x; i < v.rows; i += kCountThreads) loss += load_at<kShort>(v.b, i);
  loss = warp_total(loss);
  right = warp_sum(right);
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = loss;
    counts[threadIdx.x / 32] = right;
  }
  __syncthreads();
  RangeCount seen;
  if (threadIdx.x < 32) {
    loss = warp_total(sums[threadIdx.x]);
    right = warp_sum(counts[threadIdx.x]);
    const float made[8] = {rounded(loss), static_cast<float>(right)};
    if constexpr (kShort) {
      if (threadIdx.x < 2) store_single(out, *state, threadIdx.x, made[threadIdx.x == 0 ? 0 : 1], seen);
    } else {
      if (threadIdx.x == 0) store(out, *state, 0, made, seen);
    }
  }
  report(seen, out.stats);
}

// One block: terms are few beside the tensors of a step.
__global__ void __launch_bounds__(kCountThreads)
    total(const __grid_constant__ LossViews v, const __grid_constant__ WriteView out,
          const StepState* state) {
  __shared__ double sums[kCountThreads / 32];
  double sum = 0;
  for (uint64_t g = threadIdx.x; g < groups_of(v.a.elements); g += kCountThreads) {
    float term[8], weight[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    load_stored(v.a, g, term);
    if (v.b.elements != 0) load_stored(v.b, g, weight);
    const uint32_t count = count_in(v.a, g);
    for (uint32_t i = 0; i < count; ++i) sum += static_cast<double>(term[i]) * static_cast<double>(weight[i]);
  }
  sum = warp_total(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  RangeCount seen;
  if (threadIdx.x < 32) {
    sum = warp_total(sums[threadIdx.x]);
    const float made[8] = {rounded(sum)};
    if (threadIdx.x == 0) store(out, *state, 0, made, seen);
  }
  report(seen, out.stats);
}

// Whether the single-element kernels apply. For long rows groups are faster.
bool is_short(const LossViews& v, const WriteView& out) {
  constexpr uint32_t kLong = 1024;
  return v.width <= kLong && by_singles(v.a) && (v.b.elements == 0 || by_singles(v.b)) && by_singles(out);
}

}  // namespace

void map_rows(RowMap map, const LossViews& views, const WriteView& out, const StepState* state,
              Stream stream) {
  const bool brief = is_short(views, out);
  const auto go = [&](auto kernel) { launch(kernel, grid_of_rows(views.rows), stream, views, out, state); };
  switch (map) {
    case RowMap::softmax:
      return go(brief ? map_short<RowMap::softmax> : map_all<RowMap::softmax>);
    case RowMap::softmax_grad:
      return go(brief ? map_short<RowMap::softmax_grad> : map_all<RowMap::softmax_grad>);
    case RowMap::log_softmax:
      return go(brief ? map_short<RowMap::log_softmax> : map_all<RowMap::log_softmax>);
    case RowMap::log_softmax_grad:
      return go(brief ? map_short<RowMap::log_softmax_grad> : map_all<RowMap::log_softmax_grad>);
    case RowMap::nll_grad:
      return go(brief ? map_short<RowMap::nll_grad> : map_all<RowMap::nll_grad>);
    case RowMap::cross_entropy_grad:
      return go(brief ? map_short<RowMap::cross_entropy_grad> : map_all<RowMap::cross_entropy_grad>);
  }
}

void sum_rows(RowLoss loss, const LossViews& views, const WriteView& out, const StepState* state,
              Stream stream) {
  const bool brief = is_short(views, out);
  const auto go = [&](auto kernel) { launch(kernel, grid_of_rows(views.rows), stream, views, out, state); };
  switch (loss) {
    case RowLoss::nll:
      return go(brief ? sum_short<RowLoss::nll> : sum_all<RowLoss::nll>);
    case RowLoss::cross_entropy:
      return go(brief ? sum_short<RowLoss::cross_entropy> : sum_all<RowLoss::cross_entropy>);
    case RowLoss::mse:
      return go(brief ? sum_short<RowLoss::mse> : sum_all<RowLoss::mse>);
    case RowLoss::bce_with_logits:
      return go(brief ? sum_short<RowLoss::bce_with_logits> : sum_all<RowLoss::bce_with_logits>);
  }
}

void target_grad(RowLoss loss, const StoredView& dout, const StoredView& x, const StoredView& target,
                 uint32_t width, const WriteView& out, const StepState* state, Stream stream) {
  launch(loss == RowLoss::mse ? target_grads<RowLoss::mse> : target_grads<RowLoss::bce_with_logits>,
         {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, dout, x, target, width, out, state);
}

void sum_terms(const LossViews& views, const WriteView& out, const StepState* state, Stream stream) {
  launch(total, {1, kCountThreads}, stream, views, out, state);
}

void classify(const LossViews& views, const WriteView& out, const StepState* state, Stream stream) {
  // About eight scores per lane.
  uint32_t team = 1;
  while (team < 32 && team * 8 < views.width) team *= 2;
  const bool brief = is_short(views, out);
  // Uses lanes that would otherwise be idle.
  while (brief && team < 32 && team < views.width && views.rows * team * 2 <= kCountThreads) team *= 2;
  launch(brief ? count_right<true> : count_right<false>, {1, kCountThreads}, stream, views, team, out, state);
}

}  // namespace ulp::cuda
