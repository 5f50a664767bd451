// Elementwise patterns of forward, activations by themselves, and copies.
#include "ulp/backend/cuda/elementwise/fused_elementwise.h"

#include <string>

#include "ulp/backend/cuda/access/single.h"
#include "ulp/backend/cuda/batchnorm/batchnorm.h"
#include "ulp/backend/cuda/elementwise/fused_kernel.h"

namespace ulp::cuda {
namespace {

namespace el = ulp::elementwise;

// An activation of the table, and its gradient.
template <typename Op>
struct Forward {
  static constexpr bool kSettles = false;
  template <int kWidth>
  __device__ static float apply(const Stage& stage, float x) {
    return Op::forward(x, stage.scalar);
  }
};
template <typename Op>
struct Backward {
  static constexpr bool kSettles = false;
  template <int kWidth>
  __device__ static float apply(const Stage& stage, float dout, float saved) {
    return Op::grad(dout, saved, stage.scalar);
  }
};
struct MultiplyOp {
  static constexpr bool kSettles = true;
  template <int kWidth>
  __device__ static float apply(const Stage&, float x, float y) {
    return settled<kWidth>(x * y);
  }
};

// Random words by element.
template <typename A>
struct Dropout : Map<CopyOp, A> {
  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& args, const Raws& raw, const At& at, float (&x)[8]) {
    value<kWidth, L, S>(this->a, args, raw, at, x);
    const Stage& stage = args.stage[S + A::kStages];
    uint32_t words[8];
    group_words(el::dropout_key(at.state, stage.words), at.group, words);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = el::dropout(x[i], words[i], {stage.threshold, stage.scalar});
  }
};

// Many inputs, added from left to right.
struct SumMany {
  static constexpr int kLeaves = kMaxLeaves, kStages = 1, kViews = 0, kParams = 0;
  static constexpr bool kSettles = true;

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& a, const Raws&, const At& at, float (&x)[8]) {
    static_assert(kWidth == kAny && L == 0);
    load_any(a.leaf[0].view, at.state, at.group, x);
    for (int k = 1; k < a.leaves; ++k) {
      float next[8];
      load_any(a.leaf[k].view, at.state, at.group, next);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = el::Add::forward(x[i], next[i]);
    }
  }
  template <int S, typename Args>
  __device__ void report_inside(const Args&) const {}
};

struct Seed {
  static constexpr int kLeaves = 0, kStages = 1, kViews = 0, kParams = 0;
  static constexpr bool kSettles = true;

  template <int kWidth, int L, int S, typename Args, typename Raws>
  __device__ void eval(const Args& a, const Raws&, const At& at, float (&x)[8]) {
    const float all = el::seed(a.stage[S].scalar, at.state.loss_scale);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = all;
  }
  template <int S, typename Args>
  __device__ void report_inside(const Args&) const {}
};

using Norm = BatchNorm<X>;

constexpr Pattern kPatterns[] = {
    {"relu(batch_norm(x))", quick_or<quick_relu_norm, launch_often<Relu<Norm>>>},
    {"relu(add(batch_norm(x),x))", quick_or<quick_relu_norm_add, launch_often<Relu<Add<Norm, X>>>>},
    {"relu(add(x,batch_norm(x)))", quick_or<quick_relu_add_norm, launch_often<Relu<Add<X, Norm>>>>},
    {"relu(add(batch_norm(x),batch_norm(x)))",
     quick_or<quick_relu_norm_norm, launch_often<Relu<Add<Norm, Norm>>>>},
    {"add(batch_norm(x),x)", quick_or<quick_norm_add, launch_often<Add<Norm, X>>>},
    {"add(x,batch_norm(x))", quick_or<quick_add_norm, launch_often<Add<X, Norm>>>},
    {"add(batch_norm(x),batch_norm(x))", launch_often<Add<Norm, Norm>>},
    {"batch_norm(x)", quick_or<quick_norm, launch_often<Norm>>},
    {"relu(x)", launch_often<Relu<X>>},
    {"add(x,x)", launch_often<Add<X, X>>},
    {"copy(x)", launch_often<Copy<X>>},
    {"multiply(x,x)", launch_rare<Map2<MultiplyOp, X, X>>},
    {"dropout(x)", launch_rare<Dropout<X>>},
    {"dropout_grad(x)", launch_rare<Dropout<X>>},
    {"sum(many)", launch_rare<SumMany>},
    {"seed()", launch_rare<Seed>},
};

// The copy that this block works on. Each copy has as many consecutive blocks as it needs.
__device__ inline int copy_of(const Copies& copies) {
  int low = 0, high = copies.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (blockIdx.x < copies.one[middle].first_block) {
      high = middle - 1;
    } else {
      low = middle;
    }
  }
  return low;
}

// For small copies: one element per thread.
__global__ void __launch_bounds__(kThreads) run_singles(ULP_TABLE(Copies) copies) {
  const Copies::One& one = copies.one[copy_of(copies)];
  const uint64_t i = uint64_t{blockIdx.x - one.first_block} * blockDim.x + threadIdx.x;
  RangeCount seen;
  if (i < one.out.stored.elements)
    store_single(one.out, *copies.state, i, load_single(one.in.stored, i), seen);
  if (!one.out.stored.fp32) report(seen, one.out.stats);
}

__global__ void __launch_bounds__(kThreads) run_copies(ULP_TABLE(Copies) copies) {
  const int which = copy_of(copies);
  const Copies::One& one = copies.one[which];
  const uint32_t end = which + 1 < copies.count ? copies.one[which + 1].first_block : gridDim.x;
  const uint64_t groups = groups_of(one.out.stored.elements),
                 threads = uint64_t{end - one.first_block} * blockDim.x;
  RangeCount seen;
  for (uint64_t g = uint64_t{blockIdx.x - one.first_block} * blockDim.x + threadIdx.x; g < groups;
       g += threads) {
    float x[8];
    load_any(one.in, *copies.state, g, x);
    store_any(one.out, *copies.state, g, x, seen);
  }
  if (!one.out.stored.fp32) report(seen, one.out.stats);
}

}  // namespace

FusedLaunch find_elementwise(std::string_view text) { return find_in(kPatterns, text); }

FusedLaunch find_activation(std::string_view text) {
  FusedLaunch found = nullptr;
  el::Activations::for_each([&]<typename Op>(Op) {
    if (text == std::string(Op::kName) + "(x)") found = launch_rare<Map<Forward<Op>, X>>;
    if (text == std::string(Op::kGradName) + "(x,x)") found = launch_rare<Map2<Backward<Op>, X, X>>;
  });
  return found;
}

void launch_copies(const Copies& copies, Stream stream) {
  static_assert(sizeof(copies) <= kMostParameters);
  constexpr uint32_t kMostBlocks = 128;   // of one copy
  constexpr uint64_t kLittle = 1u << 16;  // elements
  Copies large, little;
  uint32_t blocks = 0, single_blocks = 0;
  large.state = little.state = copies.state;
  for (int i = 0; i < copies.count; ++i) {
    Copies::One one = copies.one[i];
    const uint64_t elements = one.out.stored.elements;
    if (elements <= kLittle && !one.in.rounds && by_singles(one.in.stored) && by_singles(one.out)) {
      one.first_block = single_blocks;
      single_blocks += blocks_for(elements);
      little.one[little.count++] = one;
    } else {
      one.first_block = blocks;
      blocks += blocks_for(groups_of(elements), kThreads, kMostBlocks);
      large.one[large.count++] = one;
    }
  }
  if (large.count > 0) launch(run_copies, {blocks, kThreads}, stream, large);
  if (little.count > 0) launch(run_singles, {single_blocks, kThreads}, stream, little);
}

}  // namespace ulp::cuda
