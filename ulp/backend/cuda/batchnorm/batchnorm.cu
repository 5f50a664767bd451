// Batch norm in forward, fused with an addition and an activation.
#include "ulp/backend/cuda/batchnorm/batchnorm_forward.h"

namespace ulp::cuda {
namespace {

template <Code kFirst, Code kOut, int kLeaves>
constexpr int forward_at_once() {
  return kLeaves == 1 && !kHalves<kFirst> && !kHalves<kOut> ? 4 : 2;
}
// An output may overlay an input with codes of the same width: a thread reads groups before it
// writes them, and no other thread reads them.
template <Code kFirst, Code kSecond, Code kOut, int kLeaves, int kNorms, bool kRelu>
__global__ void __launch_bounds__(kQuickThreads,
                                  forward_blocks<kLeaves, kNorms>(kFirst != kOut || kSecond != kOut))
    run_forward(const __grid_constant__ ForwardArgs<kLeaves, kNorms> a) {
  ULP_SHARED(float, tile);
  constexpr int kAtOnce = forward_at_once<kFirst, kOut, kLeaves>();
  const uint32_t q = blockIdx.x * a.spread.active + threadIdx.x;
  uint32_t group = threadIdx.x < a.spread.active ? q : a.spread.groups;
  Packed<kFirst> first[kAtOnce];
  Packed<kSecond> second[kAtOnce];
  const auto load = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.spread.threads;
      if (g >= a.spread.groups) continue;
      first[u] = load_packed<kFirst>(a.in[0], g);
      if constexpr (kLeaves > 1) second[u] = load_packed<kSecond>(a.in[1], g);
    }
  };
  load();
  for (uint32_t c = threadIdx.x; c < a.channels; c += kQuickThreads) {
#pragma unroll
    for (int k = 0; k < kNorms; ++k) {
      const Norm& norm = a.norm[k];
      float* to = tile + 3 * k * a.channels + c;
      const float gamma = norm.gamma.at(c);
      to[0] = norm.mean[c];
      to[a.channels] =
          elementwise::Multiply::forward(gamma, elementwise::batch_inv(norm.variance[c], norm.epsilon));
      to[2 * a.channels] = norm.beta.at(c);
    }
  }
  __syncthreads();
  const uint32_t channel = threadIdx.x % a.spread.period * kGroup;
  float mean[kNorms][8], scale[kNorms][8], beta[kNorms][8];
#pragma unroll
  for (int k = 0; k < kNorms; ++k) {
    const float* from = tile + 3 * k * a.channels + channel;
    take_eight(from, mean[k]);
    take_eight(from + a.channels, scale[k]);
    take_eight(from + 2 * a.channels, beta[k]);
  }

  ForwardSeen seen;
  while (group < a.spread.groups) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.spread.threads;
      if (g >= a.spread.groups) break;
      forward_group<kFirst, kSecond, kOut, kLeaves, kNorms, kRelu>(a, tile, a.channels, g, channel, first[u],
                                                                   second[u], mean, scale, beta, seen);
    }
    group += kAtOnce * a.spread.threads;
    load();
  }
  report_forward<kOut, kLeaves, kNorms, kRelu, kQuickThreads>(a, seen);
  report_inputs(a);
}

// Calls `function` with the codes of the first input, the second input and the result. If there are
// two inputs, one has the result's code.
template <int kLeaves, typename Function>
bool with_codes(Code first, Code second, Code out, const Function& function) {
  if (first == out && second == out) {
    return choose_code<Code::bf16, Code::e4, Code::e5, Code::wide>(
        out, [&]<Code kOut> { return function.template operator()<kOut, kOut, kOut>(); });
  }
  return choose_code<Code::e4, Code::wide>(out, [&]<Code kOut> {
    constexpr Code kOther = kOut == Code::e4 ? Code::wide : Code::e4;
    if constexpr (kLeaves == 1) {
      return first == kOther && function.template operator()<kOther, kOther, kOut>();
    } else {
      if (first == kOther && second == kOut) return function.template operator()<kOther, kOut, kOut>();
      return first == kOut && second == kOther && function.template operator()<kOut, kOther, kOut>();
    }
  });
}

// kBegin: the input that is normalised first.
template <int kLeaves, int kNorms, bool kRelu, int kBegin>
bool launch_forward(const FusedCall& call, Stream stream) {
  ForwardArgs<kLeaves, kNorms> a;
  if (!take_forward<kLeaves, kNorms, kRelu, kBegin>(call, a)) return false;
  const Code first = code_of(call.leaf[kBegin]), second = code_of(call.leaf[kLeaves - 1 - kBegin]),
             out = code_of(call.rounder);
  const Grid grid{a.spread.blocks(), kQuickThreads, 3 * kNorms * sizeof(float) * a.channels};
  return with_codes<kLeaves>(first, second, out, [&]<Code kFirst, Code kSecond, Code kOut> {
    launch(run_forward<kFirst, kSecond, kOut, kLeaves, kNorms, kRelu>, grid, stream, a);
    return true;
  });
}

}  // namespace

bool quick_norm(const FusedCall& call, Stream stream) { return launch_forward<1, 1, false, 0>(call, stream); }
bool quick_relu_norm(const FusedCall& call, Stream stream) {
  return launch_forward<1, 1, true, 0>(call, stream);
}
bool quick_norm_add(const FusedCall& call, Stream stream) {
  return launch_forward<2, 1, false, 0>(call, stream);
}
bool quick_add_norm(const FusedCall& call, Stream stream) {
  return launch_forward<2, 1, false, 1>(call, stream);
}
bool quick_relu_norm_add(const FusedCall& call, Stream stream) {
  return launch_forward<2, 1, true, 0>(call, stream);
}
bool quick_relu_add_norm(const FusedCall& call, Stream stream) {
  return launch_forward<2, 1, true, 1>(call, stream);
}
bool quick_relu_norm_norm(const FusedCall& call, Stream stream) {
  return launch_forward<2, 2, true, 0>(call, stream);
}

}  // namespace ulp::cuda
