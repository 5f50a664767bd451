// Expressions over stored tensors, as types: Relu<Add<BatchNorm<X>, X>>. An object holds what a
// thread needs for its eight channels and the range events it counted; eval() gives the node's
// eight values of a group, not yet rounded. L, S, V and Q count the leaves, nodes, channel inputs
// and channel values to the left of a node. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/elementwise/fused_groups.h"
#include "ulp/backend/elementwise.h"

namespace ulp::cuda {

// Not inlined, to keep the many kernels that call it small.
__attribute__((noinline)) static __device__ void load_any(const ReadView& view, const StepState& state,
                                                          uint64_t group, float (&x)[8]) {
  RangeCount dropped;  // weights that are rounded when read are reported where that is done
  load(view, state, group, x, dropped);
}

__attribute__((noinline)) static __device__ void round_any(const Rounder& rounder, const StepState& state,
                                                           uint64_t group, uint32_t count, float (&x)[8],
                                                           RangeCount& seen) {
  uint32_t words[8] = {};
  if (rounder.mode == Round::stochastic) group_words(key_of(state, rounder.number, false), group, words);
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const Encoded made = encode_quick(rounder.codec, rounder.mode, float_bits(x[i]), words[i]);
    if (i < count) seen.add(made, float_bits(x[i]));
    x[i] = bits_float(decode_quick(rounder.codec, made.code));
  }
}

constexpr uint32_t kTableValues = 256;

// A thread's position.
struct At {
  const StepState& state;
  uint64_t group;
  uint32_t count;       // elements that exist in the group
  const float* values;  // tables of the leaves, 256 values each
};

// The value of a node's input: a leaf as read, or an inlined node after rounding. It equals what
// the node's tensor would hold.
template <int kWidth, int L, int S, typename Child, typename Args, typename Raws>
__device__ inline void value(Child& child, const Args& a, const Raws& raw, const At& at, float (&x)[8]) {
  child.template eval<kWidth, L, S>(a, raw, at, x);
  if constexpr (Child::kStages > 0) {
    const Rounder& rounder = a.stage[S + Child::kStages - 1].rounder;
    if constexpr (kWidth != kAny) {
      round_quick<Child::kSettles>(rounder, x, child.seen);
    } else if (rounder.on) {
      round_any(rounder, at.state, at.group, at.count, x, child.seen);
    }
  }
}

// Reports the range events inside a child and, if it is a node, of rounding it.
template <int S, typename Child, typename Args>
__device__ inline void report_child(const Child& child, const Args& a) {
  if constexpr (Child::kStages > 0) {
    child.template report_inside<S>(a);
    const Rounder& rounder = a.stage[S + Child::kStages - 1].rounder;
    if (rounder.on) report(child.seen, rounder.stats);
  }
}

// The value of a channel input. Rounding events are counted once, if `counts`.
__attribute__((noinline)) static __device__ float channel_any(const ReadView& view, const StepState& state,
                                                              uint64_t c, bool counts, RangeCount& seen) {
  RangeCount dropped;
  return load_one(view, state, c, counts ? seen : dropped);
}
__device__ inline float channel_value(const ReadView& view, const StepState& state, uint64_t c, bool counts,
                                      RangeCount& seen) {
  if (view.stored.fp32 && !view.rounds) return reinterpret_cast<const float*>(view.stored.codes)[c];
  return channel_any(view, state, c, counts, seen);
}

// A block's channel values in shared memory: value q of entry e is at [q * entries + e]. Entries
// tells where a thread finds its eight.
struct Entries {
  uint32_t count;
  uint32_t at[8];
};
__device__ inline void take_values(const float* tile, const Entries& entries, int q, float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = tile[static_cast<uint32_t>(q) * entries.count + entries.at[i]];
}

struct X {
  static constexpr int kLeaves = 1, kStages = 0, kViews = 0, kParams = 0;
  static constexpr bool kSettles = false;

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& a, const Raws& raw, const At& at, float (&x)[8]) {
    if constexpr (kWidth == kAny) {
      load_any(a.leaf[L].view, at.state, at.group, x);
    } else {
      decode_group<kWidth>(a.leaf[L], raw[L], x, at.values + L * kTableValues);
    }
  }
  template <int S, int V, int Q, typename Args>
  __device__ static void fill(const Args&, float*, uint32_t, uint32_t, uint64_t, bool, RangeCount*) {}
  template <int Q>
  __device__ void take(const float*, const Entries&) {}
};

// One input.
template <typename Op, typename A>
struct Map {
  static constexpr int kLeaves = A::kLeaves, kStages = A::kStages + 1, kViews = A::kViews,
                       kParams = A::kParams;
  static constexpr bool kSettles = Op::kSettles;
  A a;
  RangeCount seen;

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& args, const Raws& raw, const At& at, float (&x)[8]) {
    value<kWidth, L, S>(a, args, raw, at, x);
    const Stage& stage = args.stage[S + A::kStages];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = Op::template apply<kWidth>(stage, x[i]);
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

// Two inputs.
template <typename Op, typename A, typename B>
struct Map2 {
  static constexpr int kLeaves = A::kLeaves + B::kLeaves, kStages = A::kStages + B::kStages + 1,
                       kViews = A::kViews + B::kViews, kParams = A::kParams + B::kParams;
  static constexpr bool kSettles = Op::kSettles;
  A a;
  B b;
  RangeCount seen;

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& args, const Raws& raw, const At& at, float (&x)[8]) {
    float y[8];
    value<kWidth, L, S>(a, args, raw, at, x);
    value<kWidth, L + A::kLeaves, S + A::kStages>(b, args, raw, at, y);
    const Stage& stage = args.stage[S + A::kStages + B::kStages];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = Op::template apply<kWidth>(stage, x[i], y[i]);
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
  }
  template <int Q>
  __device__ void take(const float* tile, const Entries& entries) {
    a.template take<Q>(tile, entries);
    b.template take<Q + A::kParams>(tile, entries);
  }
};

// The operators. The fast path leaves NaN as it is if kSettles says that it will be settled later.
template <int kWidth>
__device__ inline float settled(float x) {
  return kWidth == kAny ? settle_nan(x) : x;
}
struct ReluOp {
  static constexpr bool kSettles = false;
  template <int kWidth>
  __device__ static float apply(const Stage&, float x) {
    return elementwise::Relu::forward(x);
  }
};
struct ReluGradOp {
  static constexpr bool kSettles = false;
  template <int kWidth>
  __device__ static float apply(const Stage&, float dout, float out) {
    return out > 0.0f ? dout : 0.0f;
  }
};
struct AddOp {
  static constexpr bool kSettles = true;
  template <int kWidth>
  __device__ static float apply(const Stage&, float x, float y) {
    return settled<kWidth>(x + y);
  }
};
struct CopyOp {
  static constexpr bool kSettles = false;
  template <int kWidth>
  __device__ static float apply(const Stage&, float x) {
    return x;
  }
};

template <typename A>
using Relu = Map<ReluOp, A>;
template <typename A>
using Copy = Map<CopyOp, A>;
template <typename A, typename B>
using ReluGrad = Map2<ReluGradOp, A, B>;
template <typename A, typename B>
using Add = Map2<AddOp, A, B>;

// Channel inputs: gamma, beta, mean, variance; channel values: mean, scale, beta.
template <typename A>
struct BatchNorm {
  static constexpr int kLeaves = A::kLeaves, kStages = A::kStages + 1, kViews = A::kViews + 4,
                       kParams = A::kParams + 3;
  static constexpr bool kSettles = true;
  A a;
  RangeCount seen;
  float mean[8], scale[8], beta[8];

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& args, const Raws& raw, const At& at, float (&x)[8]) {
    value<kWidth, L, S>(a, args, raw, at, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = settled<kWidth>((x[i] - mean[i]) * scale[i] + beta[i]);
  }
  template <int S, typename Args>
  __device__ void report_inside(const Args& args) const {
    report_child<S>(a, args);
  }
  template <int S, int V, int Q, typename Args>
  __device__ static void fill(const Args& args, float* tile, uint32_t entries, uint32_t e, uint64_t c,
                              bool counts, RangeCount* views) {
    A::template fill<S, V, Q>(args, tile, entries, e, c, counts, views);
    float in[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      in[i] = channel_value(args.view[V + A::kViews + i], *args.state, c, counts, views[V + A::kViews + i]);
    }
    float* to = tile + (Q + A::kParams) * entries + e;
    to[0] = in[2];
    to[entries] = elementwise::Multiply::forward(
        in[0], elementwise::batch_inv(in[3], args.stage[S + A::kStages].epsilon));
    to[2 * entries] = in[1];
  }
  template <int Q>
  __device__ void take(const float* tile, const Entries& entries) {
    a.template take<Q>(tile, entries);
    take_values(tile, entries, Q + A::kParams, mean);
    take_values(tile, entries, Q + A::kParams + 1, scale);
    take_values(tile, entries, Q + A::kParams + 2, beta);
  }
};

// The gradient of a batch norm, from (dout, x). Channel inputs: gamma, mean, variance and the two
// sums.
template <typename A, typename B>
struct BatchNormGrad {
  static constexpr int kBefore = A::kParams + B::kParams, kViewsBefore = A::kViews + B::kViews;
  static constexpr int kLeaves = A::kLeaves + B::kLeaves, kStages = A::kStages + B::kStages + 1,
                       kViews = kViewsBefore + 5, kParams = kBefore + 5;
  static constexpr bool kSettles = true;
  A a;
  B b;
  RangeCount seen;
  float mean[8], inv[8], scale[8], mean_dout[8], mean_product[8];

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& args, const Raws& raw, const At& at, float (&dout)[8]) {
    float x[8];
    value<kWidth, L, S>(a, args, raw, at, dout);
    value<kWidth, L + A::kLeaves, S + A::kStages>(b, args, raw, at, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      dout[i] = settled<kWidth>(scale[i] *
                                ((dout[i] - mean_dout[i]) - ((x[i] - mean[i]) * inv[i]) * mean_product[i]));
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
    float in[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      in[i] =
          channel_value(args.view[V + kViewsBefore + i], *args.state, c, counts, views[V + kViewsBefore + i]);
    }
    const Stage& stage = args.stage[S + kStages - 1];
    const float inverse = elementwise::batch_inv(in[2], stage.epsilon);
    float* to = tile + (Q + kBefore) * entries + e;
    to[0] = in[1];
    to[entries] = inverse;
    to[2 * entries] = elementwise::Multiply::forward(in[0], inverse);
    to[3 * entries] = elementwise::batch_mean(in[3], stage.rows);
    to[4 * entries] = elementwise::batch_mean(in[4], stage.rows);
  }
  template <int Q>
  __device__ void take(const float* tile, const Entries& entries) {
    a.template take<Q>(tile, entries);
    b.template take<Q + A::kParams>(tile, entries);
    take_values(tile, entries, Q + kBefore, mean);
    take_values(tile, entries, Q + kBefore + 1, inv);
    take_values(tile, entries, Q + kBefore + 2, scale);
    take_values(tile, entries, Q + kBefore + 3, mean_dout);
    take_values(tile, entries, Q + kBefore + 4, mean_product);
  }
};

// Arguments of every kernel of an expression.
template <typename Expression>
struct FusedArgs {
  const StepState* state;
  uint64_t elements, groups, threads, channels, period;
  uint32_t active, entries;
  bool whole;  // a block holds the channel values of all channels; else those of its first elements
  int leaves;
  Leaf leaf[Expression::kLeaves > 0 ? Expression::kLeaves : 1];
  Stage stage[Expression::kStages];
  ReadView view[Expression::kViews > 0 ? Expression::kViews : 1];

  FusedArgs(const FusedCall& call, const Spread& spread)
      : state(call.state),
        elements(call.elements),
        groups(groups_of(call.elements)),
        threads(spread.threads),
        channels(call.channels),
        period(spread.period),
        active(spread.active),
        leaves(call.leaves) {
    // With a single row an output may overlay a channel input; then no block may read what another
    // writes.
    whole = channels <= uint64_t{kGroup} * active && elements > channels;
    entries = whole ? static_cast<uint32_t>(channels) : kGroup * active;
    for (int i = 0; i < Expression::kLeaves; ++i) leaf[i] = call.leaf[i];
    for (int i = 0; i < Expression::kStages; ++i) stage[i] = call.stage[i];
    for (int i = 0; i < Expression::kViews; ++i) view[i] = call.view[i];
  }
  size_t tile_bytes() const { return size_t{Expression::kParams} * entries * sizeof(float); }
};

// Computes the block's channel values and takes the thread's own. All threads of the block must
// call it.
template <typename Expression, typename Args>
__device__ inline void prepare(Expression& expression, const Args& a, float* tile, uint64_t q) {
  if constexpr (Expression::kParams > 0) {
    RangeCount seen[Expression::kViews];
    const uint64_t first = uint64_t{blockIdx.x} * a.active * kGroup;
    for (uint32_t e = threadIdx.x; e < a.entries; e += blockDim.x) {
      if (!a.whole && first + e >= a.elements) break;
      const uint64_t c = a.whole ? e : (first + e) % a.channels;
      const bool counts = a.whole ? blockIdx.x == 0 : first + e < a.channels;
      Expression::template fill<0, 0, 0>(a, tile, a.entries, e, c, counts, seen);
    }
#pragma unroll
    for (int i = 0; i < Expression::kViews; ++i) {
      if (a.view[i].rounds) report(seen[i], a.view[i].stats);
    }
    __syncthreads();
    if (q < a.threads && q < a.groups) {
      Entries entries;
      entries.count = a.entries;
      uint64_t c = a.whole ? q * kGroup % a.channels : uint64_t{threadIdx.x} * kGroup;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        entries.at[i] = static_cast<uint32_t>(c);
        if (++c == a.entries) c = 0;
      }
      expression.template take<0>(tile, entries);
    }
  } else {
    (void)expression, (void)a, (void)tile, (void)q;
  }
}

// How many groups a thread loads before it processes them.
template <typename Expression, int kWidth>
constexpr int groups_at_once() {
  if (kWidth == kAny) return 1;
  if (kWidth == 8) return Expression::kLeaves == 1 ? 4 : 2;
  return kWidth == 16 && Expression::kLeaves == 1 ? 4 : 2;
}

// The leaves' codes of the groups that a thread processes next (prefetch).
template <typename Expression, int kWidth>
struct Prefetched {
  static constexpr int kAtOnce = groups_at_once<Expression, kWidth>();
  static constexpr int kLeaves = Expression::kLeaves > 0 ? Expression::kLeaves : 1;
  Raw<kWidth> raw[kAtOnce][kLeaves];

  template <typename Args>
  __device__ void load(const Args& a, uint64_t group) {
    if constexpr (kWidth != kAny) {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const uint64_t g = group + static_cast<uint64_t>(u) * a.threads;
        if (g >= a.groups) continue;
#pragma unroll
        for (int i = 0; i < Expression::kLeaves; ++i) load_raw<kWidth>(a.leaf[i], g, raw[u][i]);
      }
    } else {
      (void)a, (void)group;
    }
  }
};

template <typename Args>
__device__ inline At place(const Args& a, uint64_t group, const float* values) {
  const uint64_t left = a.elements - group * kGroup;
  return {*a.state, group, left < kGroup ? static_cast<uint32_t>(left) : kGroup, values};
}

// Room for the tables of a kernel's leaves in shared memory. The general path has none.
template <typename Expression, int kWidth>
constexpr uint32_t table_values() {
  return kWidth == kAny || Expression::kLeaves == 0 ? 1 : Expression::kLeaves * kTableValues;
}

// Makes the tables of those leaves that have one. All threads of the block must call it.
template <typename Expression, int kWidth, typename Args>
__device__ inline void make_tables(const Args& a, float* values) {
  if constexpr (kWidth != kAny) {
    bool any = false;
#pragma unroll
    for (int i = 0; i < Expression::kLeaves; ++i) {
      if (!a.leaf[i].table) continue;
      make_s2fp8_values(a.leaf[i].view.stored, values + i * kTableValues);
      any = true;
    }
    if (any) __syncthreads();
  } else {
    (void)a, (void)values;
  }
}

// The width of leaves that a kernel must be compiled for; kAny if something needs the general path.
inline int width_of(const FusedCall& call) {
  if (call.elements % kGroup != 0 || call.leaves == 0) return kAny;
  for (int i = 0; i < call.stages; ++i) {
    if (call.stage[i].rounder.on && !call.stage[i].rounder.quick) return kAny;
  }
  int width = 8;
  for (int i = 0; i < call.leaves; ++i) {
    const Leaf& leaf = call.leaf[i];
    if (!leaf.quick && !leaf.table) return kAny;
    width = leaf.view.stored.bits > width ? leaf.view.stored.bits : width;
  }
  return width;
}

struct Pattern {
  std::string_view text;
  FusedLaunch launch;
};
template <size_t n>
FusedLaunch find_in(const Pattern (&patterns)[n], std::string_view text) {
  for (const Pattern& pattern : patterns) {
    if (pattern.text == text) return pattern.launch;
  }
  return nullptr;
}

}  // namespace ulp::cuda
