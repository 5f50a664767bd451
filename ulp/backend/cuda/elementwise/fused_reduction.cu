// Reductions over rows. Each thread sums its eight channels over its groups in fp32. The threads of
// a block with the same channels are combined in double and give a row of partial results. A second
// kernel combines the rows in double. The order depends on the shape alone.
#include "ulp/backend/cuda/access/single.h"
#include "ulp/backend/cuda/batchnorm/batchnorm.h"
#include "ulp/backend/cuda/elementwise/fused_expressions.h"

namespace ulp::cuda {
namespace {

// The gradient of a bias.
template <typename A>
struct ChannelSum {
  static constexpr int kLeaves = A::kLeaves, kStages = A::kStages + 1, kViews = A::kViews,
                       kParams = A::kParams;
  static constexpr int kValues = 1;
  static constexpr bool kMoments = false;
  A a;
  float sum[1][8] = {};

  template <int kWidth, typename Args, typename Raws>
  __device__ void add(const Args& args, const Raws& raw, const At& at, bool) {
    float x[8];
    value<kWidth, 0, 0>(a, args, raw, at, x);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) sum[0][i] += i < at.count ? x[i] : 0.0f;
  }
  template <int S, typename Args>
  __device__ void report_inside(const Args& args) const {
    report_child<S>(a, args);
  }
  template <int S, int V, int Q, typename Args>
  __device__ static void fill(const Args& args, float* tile, uint32_t entries, uint32_t e, uint64_t c,
                              bool counts, RangeCount* views) {
    A::template fill<S, V, Q>(args, tile, entries, e, c, counts, views);
  }
  template <int Q>
  __device__ void take(const float* tile, const Entries& entries) {
    a.template take<Q>(tile, entries);
  }
};

// The two sums of batch norm's gradient, of (dout, x); channel inputs: mean and variance.
template <typename A, typename B>
struct NormSums {
  static constexpr int kBefore = A::kParams + B::kParams, kViewsBefore = A::kViews + B::kViews;
  static constexpr int kLeaves = A::kLeaves + B::kLeaves, kStages = A::kStages + B::kStages + 1,
                       kViews = kViewsBefore + 2, kParams = kBefore + 2;
  static constexpr int kValues = 2;
  static constexpr bool kMoments = false;
  A a;
  B b;
  float mean[8], inv[8];
  float sum[2][8] = {};

  template <int kWidth, typename Args, typename Raws>
  __device__ void add(const Args& args, const Raws& raw, const At& at, bool) {
    float dout[8], x[8];
    value<kWidth, 0, 0>(a, args, raw, at, dout);
    value<kWidth, A::kLeaves, A::kStages>(b, args, raw, at, x);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const float product = dout[i] * ((x[i] - mean[i]) * inv[i]);
      sum[0][i] += i < at.count ? dout[i] : 0.0f;
      sum[1][i] += i < at.count ? product : 0.0f;
    }
  }
  template <int S, typename Args>
  __device__ void report_inside(const Args& args) const {
    report_child<S>(a, args);
    report_child<S + A::kStages>(b, args);
  }
  template <int S, int V, int Q, typename Args>
  __device__ static void fill(const Args& args, float* tile, uint32_t entries, uint32_t e, uint64_t c,
                              bool counts, RangeCount* views) {
    A::template fill<S, V, Q>(args, tile, entries, e, c, counts, views);
    B::template fill<S + A::kStages, V + A::kViews, Q + A::kParams>(args, tile, entries, e, c, counts, views);
    float in[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      in[i] =
          channel_value(args.view[V + kViewsBefore + i], *args.state, c, counts, views[V + kViewsBefore + i]);
    }
    float* to = tile + (Q + kBefore) * entries + e;
    to[0] = in[0];
    to[entries] = elementwise::batch_inv(in[1], args.stage[S + kStages - 1].epsilon);
  }
  template <int Q>
  __device__ void take(const float* tile, const Entries& entries) {
    a.template take<Q>(tile, entries);
    b.template take<Q + A::kParams>(tile, entries);
    take_values(tile, entries, Q + kBefore, mean);
    take_values(tile, entries, Q + kBefore + 1, inv);
  }
};

// Mean and variance. Squares are taken about the thread's first value of the channel: a thread has
// few rows, so subtracting the square of the mean's distance from it cancels little. Threads are
// then combined by means and squares about them (Chan, Golub, LeVeque), where nothing cancels.
template <typename A>
struct Stats {
  static constexpr int kLeaves = A::kLeaves, kStages = A::kStages + 1, kViews = A::kViews,
                       kParams = A::kParams;
  static constexpr int kValues = 2;
  static constexpr bool kMoments = true;
  A a;
  float first[8] = {};
  float sum[2][8] = {};

  template <int kWidth, typename Args, typename Raws>
  __device__ void add(const Args& args, const Raws& raw, const At& at, bool begins) {
    float x[8];
    value<kWidth, 0, 0>(a, args, raw, at, x);
    if (begins) {
#pragma unroll
      // A value that would carry sums of differences out of range is not used.
      for (int i = 0; i < 8; ++i) first[i] = fabsf(x[i]) < 0x1p62f ? x[i] : 0.0f;
    }
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const float rest = i < at.count ? x[i] - first[i] : 0.0f;
      sum[0][i] += rest;
      sum[1][i] += rest * rest;
    }
  }
  // From sums to the mean and the squares about it.
  __device__ void center(int i, double count) {
    const double total = sum[0][i], share = total / count;
    const double squares = sum[1][i] - total * share;
    sum[0][i] = static_cast<float>(first[i] + share);
    // Rounding may give a negative number; NaN stays.
    sum[1][i] = static_cast<float>(squares < 0 ? 0 : squares);
  }
  template <int S, typename Args>
  __device__ void report_inside(const Args& args) const {
    report_child<S>(a, args);
  }
};

template <typename Root>
struct ReductionArgs : FusedArgs<Root> {
  float* partial;
  uint64_t rows;
  // Every thread has `rounds` elements at each place; the first `rest` places have one more.
  uint64_t rounds, rest;

  ReductionArgs(const FusedCall& call, const Spread& spread)
      : FusedArgs<Root>(call, spread),
        partial(call.partial),
        rows(spread.rows),
        rounds(call.elements / (spread.threads * kGroup)),
        rest(call.elements % (spread.threads * kGroup)) {}
};

// How many elements thread q has at place i of its groups.
template <typename Args>
__device__ inline uint64_t count_of(const Args& a, uint64_t q, uint32_t i) {
  return a.rounds + (q * kGroup + i < a.rest ? 1 : 0);
}

// Partial results: [value][row][place], with the places of a period; moments have their counts as a
// third value.
template <typename Args>
__device__ inline float* partial_at(const Args& a, int value, uint64_t row, uint64_t place) {
  return a.partial + (static_cast<uint64_t>(value) * a.rows + row) * a.period * kGroup + place;
}

// The combined result of several threads or rows: a sum, or for moments the number of elements and
// the sums of first and second powers of their distances from a nearby pivot. In double, where
// nothing cancels that fp32 could hold.
struct PartialSum {
  double count = 0, first = 0, second = 0;

  __device__ void add_moment(double n, double away, double squares) {
    count += n;
    first += n * away;
    second += squares + n * away * away;
  }
  // A pivot from which a distance would not be finite is not used.
  __device__ static double pivot_of(float x) { return fabsf(x) < 0x1p100f ? static_cast<double>(x) : 0.0; }
  __device__ double mean(double pivot) const { return pivot + first / count; }
  __device__ double squares() const {
    const double about = second - first * (first / count);
    return about < 0 ? 0 : about;  // NaN stays
  }
};

// Combines the threads of a block with the same channels; thread k * period + p has place p. Each
// thread combines a run of them, and the runs are combined in order.
template <typename Root, typename Args>
__device__ inline void reduce_block(const Args& a, const float* shared) {
  __shared__ PartialSum runs[kReductionThreads];
  const uint32_t places = static_cast<uint32_t>(a.period) * kGroup, slots = a.active * kGroup / places;
  const uint32_t parts = blockDim.x >= places ? blockDim.x / places : 1, run = (slots + parts - 1) / parts;
  const float* second = shared + a.active * kGroup;
  const uint64_t first = uint64_t{blockIdx.x} * a.active;
  for (uint32_t base = 0; base < places; base += blockDim.x) {
    const uint32_t e = base + threadIdx.x % (places < blockDim.x ? places : blockDim.x),
                   part = threadIdx.x / places;
    PartialSum mine;
    if (e < places && part < parts) {
      const double pivot = PartialSum::pivot_of(shared[e]);
      const uint32_t end = (part + 1) * run < slots ? (part + 1) * run : slots;
      for (uint32_t k = part * run; k < end; ++k) {
        const uint32_t at = k * places + e;
        if constexpr (Root::kMoments) {
          const uint64_t n = count_of(a, first + k * a.period + e / kGroup, e % kGroup);
          if (n > 0)
            mine.add_moment(static_cast<double>(n), static_cast<double>(shared[at]) - pivot,
                            static_cast<double>(second[at]));
        } else {
          mine.first += static_cast<double>(shared[at]);
          if constexpr (Root::kValues == 2) mine.second += static_cast<double>(second[at]);
        }
      }
    }
    runs[threadIdx.x] = mine;
    __syncthreads();
    if (e < places && part == 0) {
      for (uint32_t k = 1; k < parts; ++k) {
        const PartialSum& next = runs[k * places + e];
        mine.count += next.count;
        mine.first += next.first;
        mine.second += next.second;
      }
      if constexpr (Root::kMoments) {
        const bool any = mine.count > 0;
        *partial_at(a, 0, blockIdx.x, e) =
            any ? static_cast<float>(mine.mean(PartialSum::pivot_of(shared[e]))) : 0.0f;
        *partial_at(a, 1, blockIdx.x, e) = any ? static_cast<float>(mine.squares()) : 0.0f;
        *partial_at(a, 2, blockIdx.x, e) = static_cast<float>(mine.count);
      } else {
        *partial_at(a, 0, blockIdx.x, e) = static_cast<float>(mine.first);
        if constexpr (Root::kValues == 2) *partial_at(a, 1, blockIdx.x, e) = static_cast<float>(mine.second);
      }
    }
    __syncthreads();
  }
}

template <typename Root, int kWidth>
__global__ void __launch_bounds__(kReductionThreads, kBlocksAtOnce)
    run_rows(const __grid_constant__ ReductionArgs<Root> a) {
  ULP_SHARED(float, shared);
  Root root;
  const uint64_t q = uint64_t{blockIdx.x} * a.active + threadIdx.x;
  const bool works = threadIdx.x < a.active && q < a.threads;
  uint64_t group = works ? q : a.groups;
  Prefetched<Root, kWidth> prefetched;
  prefetched.load(a, group);
  __shared__ float values[table_values<Root, kWidth>()];
  make_tables<Root, kWidth>(a, values);
  prepare(root, a, shared, works ? q : a.threads);
  while (group < a.groups) {
#pragma unroll
    for (int u = 0; u < prefetched.kAtOnce; ++u) {
      const uint64_t g = group + static_cast<uint64_t>(u) * a.threads;
      if (g >= a.groups) break;
      root.template add<kWidth>(a, prefetched.raw[u], place(a, g, values), g == q);
    }
    group += static_cast<uint64_t>(prefetched.kAtOnce) * a.threads;
    prefetched.load(a, group);
  }
  float counts[8] = {};
  if constexpr (Root::kMoments) {
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint64_t count = works ? count_of(a, q, i) : 0;
      if (count > 0) root.center(static_cast<int>(i), static_cast<double>(count));
      counts[i] = static_cast<float>(count);
    }
  }
  if (a.period <= a.active) {
    __syncthreads();  // the channel values are no longer needed
    if (threadIdx.x < a.active) {
#pragma unroll
      for (int k = 0; k < Root::kValues; ++k) {
        float* to = shared + (static_cast<uint32_t>(k) * a.active + threadIdx.x) * kGroup;
#pragma unroll
        for (int i = 0; i < 8; ++i) to[i] = root.sum[k][i];
      }
    }
    __syncthreads();
    reduce_block<Root>(a, shared);
  } else if (works) {
    const uint64_t row = q / a.period, first = q % a.period * kGroup;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
#pragma unroll
      for (int k = 0; k < Root::kValues; ++k) *partial_at(a, k, row, first + i) = root.sum[k][i];
      if constexpr (Root::kMoments) *partial_at(a, 2, row, first + i) = counts[i];
    }
  }
  root.template report_inside<0>(a);
}

struct ReduceArgs {
  const StepState* state;
  const float* partial;
  uint64_t rows, places, channels, elements;
  WriteView out[2];
};

// A combining block: rows are dealt to slices, channels lie side by side.
constexpr uint32_t kSlices = 32, kLanes = 16, kReduceThreads = kSlices * kLanes;

// Combines the slices of a channel in order, in its first thread.
__device__ inline PartialSum reduce_slices(const PartialSum& mine) {
  __shared__ PartialSum slices[kSlices][kLanes];
  const uint32_t slice = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  slices[slice][lane] = mine;
  __syncthreads();
  PartialSum total;
  for (uint32_t k = 0; k < kSlices && slice == 0; ++k) {
    total.count += slices[k][lane].count;
    total.first += slices[k][lane].first;
    total.second += slices[k][lane].second;
  }
  return total;
}

__device__ inline void write_channel(const WriteView& view, const StepState& state, uint64_t c,
                                     double total) {
  float* at = reinterpret_cast<float*>(view.stored.codes) + c;
  const float x = settle_nan(static_cast<float>(total));
  *at = adding(view, state) ? *at + x : x;
}

// Calls function(index of a partial result) for a thread's share of a channel.
template <typename Function>
__device__ inline void for_partials(const ReduceArgs& a, uint64_t c, const Function& function) {
  if (c >= a.channels) return;
  for (uint64_t at = c; at < a.places; at += a.channels) {
#pragma unroll 4
    for (uint64_t row = threadIdx.x / kLanes; row < a.rows; row += kSlices) function(row * a.places + at);
  }
}

template <int kValues>
__global__ void __launch_bounds__(kReduceThreads) reduce_sums(const __grid_constant__ ReduceArgs a) {
  const uint64_t c = uint64_t{blockIdx.x} * kLanes + threadIdx.x % kLanes, size = a.rows * a.places;
  PartialSum mine;
  for_partials(a, c, [&](uint64_t i) {
    mine.first += static_cast<double>(a.partial[i]);
    if constexpr (kValues == 2) mine.second += static_cast<double>(a.partial[size + i]);
  });
  const PartialSum total = reduce_slices(mine);
  if (threadIdx.x >= kLanes || c >= a.channels) return;
  write_channel(a.out[0], *a.state, c, total.first);
  if constexpr (kValues == 2) write_channel(a.out[1], *a.state, c, total.second);
}

__global__ void __launch_bounds__(kReduceThreads) reduce_moments(const __grid_constant__ ReduceArgs a) {
  const uint64_t c = uint64_t{blockIdx.x} * kLanes + threadIdx.x % kLanes, size = a.rows * a.places;
  const float *means = a.partial, *squares = a.partial + size, *counts = a.partial + 2 * size;
  // The first row has every place.
  const double pivot = c < a.channels ? PartialSum::pivot_of(means[c]) : 0;
  PartialSum mine;
  // Without elements the mean is undefined.
  for_partials(a, c, [&](uint64_t i) {
    if (counts[i] > 0)
      mine.add_moment(counts[i], static_cast<double>(means[i]) - pivot, static_cast<double>(squares[i]));
  });
  const PartialSum total = reduce_slices(mine);
  if (threadIdx.x >= kLanes || c >= a.channels) return;
  write_channel(a.out[0], *a.state, c, total.mean(pivot));
  write_channel(a.out[1], *a.state, c, total.squares() / total.count);
}

template <typename Root, int kWidth>
void launch_rows(const FusedCall& call, Stream stream) {
  const Spread spread = spread_rows(call.elements, call.channels);
  const ReductionArgs<Root> args(call, spread);
  static_assert(sizeof(args) <= 4096);
  const size_t sums = size_t{spread.active} * kGroup * Root::kValues * sizeof(float);
  const size_t shared = sums > args.tile_bytes() ? sums : args.tile_bytes();
  launch(run_rows<Root, kWidth>, {spread.blocks, spread.block, shared}, stream, args);
  const ReduceArgs reduce{call.state,
                          call.partial,
                          spread.rows,
                          spread.period * kGroup,
                          call.channels,
                          call.elements,
                          {call.out[0], call.out[1]}};
  const Grid grid{static_cast<uint32_t>((call.channels + kLanes - 1) / kLanes), kReduceThreads};
  if constexpr (Root::kMoments) {
    launch(reduce_moments, grid, stream, reduce);
  } else {
    launch(reduce_sums<Root::kValues>, grid, stream, reduce);
  }
}

template <typename Root>
void launch_reduction(const FusedCall& call, Stream stream) {
  switch (width_of(call)) {
    case 8:
      return launch_rows<Root, 8>(call, stream);
    case 16:
      return launch_rows<Root, 16>(call, stream);
    case 32:
      return launch_rows<Root, 32>(call, stream);
    default:
      return launch_rows<Root, kAny>(call, stream);
  }
}

// The gradient of a bias with few elements, as after a classifier: one launch, in which a thread
// has one channel of every 32nd row.
constexpr uint64_t kLittle = 1u << 16;
constexpr uint32_t kLittleThreads = 1024;

struct LittleSumArgs {
  const StepState* state;
  uint64_t rows, channels;
  StoredView x;
  WriteView out;
};

__global__ void __launch_bounds__(kLittleThreads) sum_little(const __grid_constant__ LittleSumArgs a) {
  __shared__ double slices[32][32];
  const uint32_t slice = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint64_t c = uint64_t{blockIdx.x} * 32 + lane;
  double sum = 0;
  if (c < a.channels) {
#pragma unroll 4
    for (uint64_t row = slice; row < a.rows; row += 32)
      sum += static_cast<double>(load_single(a.x, row * a.channels + c));
  }
  slices[slice][lane] = sum;
  __syncthreads();
  if (slice != 0 || c >= a.channels) return;
  sum = 0;
#pragma unroll 8
  for (uint32_t k = 0; k < 32; ++k) sum += slices[k][lane];
  write_channel(a.out, *a.state, c, sum);
}

void launch_channel_sum(const FusedCall& call, Stream stream) {
  const ReadView& x = call.leaf[0].view;
  if (call.elements > kLittle || x.rounds || !by_singles(x.stored))
    return launch_reduction<ChannelSum<X>>(call, stream);
  launch(sum_little, {static_cast<uint32_t>((call.channels + 31) / 32), kLittleThreads}, stream,
         LittleSumArgs{call.state, call.elements / call.channels, call.channels, x.stored, call.out[0]});
}

constexpr Pattern kPatterns[] = {
    {"batch_stats(x)", quick_or<quick_stats, launch_reduction<Stats<X>>>},
    {"batch_norm_sums(x,x)", quick_or<quick_norm_sums, launch_reduction<NormSums<X, X>>>},
    {"batch_norm_sums(relu_grad(x,x),x)",
     quick_or<quick_norm_relu_sums, launch_reduction<NormSums<ReluGrad<X, X>, X>>>},
    {"batch_norm_sums(sum(x,x),x)", launch_reduction<NormSums<Add<X, X>, X>>},
    {"channel_sum(x)", launch_channel_sum},
};

}  // namespace

FusedLaunch find_reduction(std::string_view text) { return find_in(kPatterns, text); }

}  // namespace ulp::cuda
