// The kernel of an elementwise expression. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/elementwise/fused_expressions.h"

namespace ulp::cuda {

// Any storage that is written by groups.
__attribute__((noinline)) static __device__ void store_any(const WriteView& view, const StepState& state,
                                                           uint64_t group, const float (&x)[8],
                                                           RangeCount& seen) {
  store(view, state, group, x, seen);
}

template <typename Expression>
struct ElementwiseArgs : FusedArgs<Expression> {
  WriteView out;
  Rounder rounder;

  ElementwiseArgs(const FusedCall& call, const Spread& spread)
      : FusedArgs<Expression>(call, spread), out(call.out[0]), rounder(call.rounder) {}
};

// An output may overlay an input: a thread reads groups before it writes them, and no other thread
// reads them.
template <typename Expression, int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    run_elementwise(const __grid_constant__ ElementwiseArgs<Expression> a) {
  ULP_SHARED(float, tile);
  Expression expression;
  RangeCount seen;
  const uint64_t q = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
  uint64_t group = q < a.threads ? q : a.groups;
  Prefetched<Expression, kWidth> prefetched;
  prefetched.load(a, group);
  __shared__ float values[table_values<Expression, kWidth>()];
  make_tables<Expression, kWidth>(a, values);
  prepare(expression, a, tile, q);
  while (group < a.groups) {
#pragma unroll
    for (int u = 0; u < prefetched.kAtOnce; ++u) {
      const uint64_t g = group + static_cast<uint64_t>(u) * a.threads;
      if (g >= a.groups) break;
      float x[8];
      expression.template eval<kWidth, 0, 0>(a, prefetched.raw[u], place(a, g, values), x);
      if constexpr (kWidth == kAny) {
        store_any(a.out, *a.state, g, x, seen);
      } else {
        store_quick<Expression::kSettles>(a.out, a.rounder, g, x, seen);
      }
    }
    group += static_cast<uint64_t>(prefetched.kAtOnce) * a.threads;
    prefetched.load(a, group);
  }
  expression.template report_inside<0>(a);
  if (!a.out.stored.fp32) report(seen, a.out.stats);
}

template <typename Expression, int kWidth>
void launch_width(const FusedCall& call, Stream stream) {
  const Spread spread = spread_elements(call.elements, Expression::kParams > 0 ? call.channels : 1);
  const ElementwiseArgs<Expression> args(call, spread);
  static_assert(sizeof(args) <= 4096);
  launch(run_elementwise<Expression, kWidth>, {spread.blocks, spread.block, args.tile_bytes()}, stream, args);
}

// For an operator that models rarely use: compiled once, for any storage.
template <typename Expression>
void launch_rare(const FusedCall& call, Stream stream) {
  launch_width<Expression, kAny>(call, stream);
}

template <typename Expression>
void launch_often(const FusedCall& call, Stream stream) {
  const StoredView& out = call.out[0].stored;
  const bool whole_bytes = out.fp32 || out.bits == 8 || out.bits == 16;
  const bool quick = (!call.rounder.on || call.rounder.quick) && whole_bytes && out.kind == Stored::plain &&
                     !call.out[0].sums;
  switch (quick ? width_of(call) : kAny) {
    case 8:
      return launch_width<Expression, 8>(call, stream);
    case 16:
      return launch_width<Expression, 16>(call, stream);
    case 32:
      return launch_width<Expression, 32>(call, stream);
    default:
      return launch_width<Expression, kAny>(call, stream);
  }
}

}  // namespace ulp::cuda
