// Gradients of activations, and of batch norms through activations.
#include "ulp/backend/cuda/batchnorm/batchnorm_grad.h"

namespace ulp::cuda {
namespace {

namespace el = ulp::elementwise;

// Groups whose loads are in flight at once.
template <Code kGrad, Code kMask, Code kSaved, bool kMasked>
constexpr int grad_at_once() {
  return kWordsOf<kGrad> + kWordsOf<kSaved> + (kMasked ? kWordsOf<kMask> : 0) > 6 ? 2 : 4;
}

template <Code kGrad, Code kMask, Code kSaved, Code kOut, bool kMasked>
__global__ void __launch_bounds__(kQuickThreads, kGradBlocks)
    run_norm_grad(const __grid_constant__ NormGradArgs a) {
  ULP_SHARED(float, tile);
  constexpr int kAtOnce = grad_at_once<kGrad, kMask, kSaved, kMasked>();
  const uint32_t q = blockIdx.x * a.spread.active + threadIdx.x;
  uint32_t group = threadIdx.x < a.spread.active ? q : a.spread.groups;
  Packed<kGrad> dout[kAtOnce];
  Packed<kMask> mask[kAtOnce];
  Packed<kSaved> saved[kAtOnce];
  const auto load = [&] {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.spread.threads;
      if (g >= a.spread.groups) continue;
      dout[u] = load_packed<kGrad>(a.dout, g);
      if constexpr (kMasked) mask[u] = load_packed<kMask>(a.mask, g);
      saved[u] = load_packed<kSaved>(a.x, g);
    }
  };
  load();
  for (uint32_t c = threadIdx.x; c < a.channels; c += kQuickThreads) {
    const float inverse = el::batch_inv(a.variance[c], a.epsilon);
    tile[c] = a.mean[c];
    tile[a.channels + c] = inverse;
    tile[2 * a.channels + c] = el::Multiply::forward(a.gamma.at(c), inverse);
    tile[3 * a.channels + c] = el::batch_mean(a.sum[c], a.rows);
    tile[4 * a.channels + c] = el::batch_mean(a.product[c], a.rows);
  }
  __syncthreads();
  const uint32_t channel = threadIdx.x % a.spread.period * kGroup;
  float value[kGradValues][8];
#pragma unroll
  for (uint32_t k = 0; k < kGradValues; ++k) take_eight(tile + k * a.channels + channel, value[k]);

  RangeCount seen[2];
  const bool watches = kMasked && a.masked.stats != nullptr;
  uint32_t most_masked = 0;
  while (group < a.spread.groups) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.spread.threads;
      if (g >= a.spread.groups) break;
      if constexpr (kMasked) keep_positive<kGrad, kMask>(dout[u], mask[u]);
      norm_grad_group<kGrad, kMask, kSaved, kOut, kMasked>(a, tile, a.channels, g, channel, dout[u], saved[u],
                                                           value, watches, seen[0], most_masked);
    }
    group += kAtOnce * a.spread.threads;
    load();
  }
  if (watches) seen[1].amax = number_of(a.masked.codec, most_code<kGrad>(most_masked));
  EncodeStats* const stats[2] = {a.target.stats, kMasked ? a.masked.stats : nullptr};
  report_all<2>(seen, stats);
  if (blockIdx.x == 0) report_channels(a.gamma, a.channels);
}

// Calls `function` with the codes of the gradient, the activation, the normalised input and the
// result.
template <bool kMasked, typename Function>
bool with_codes(Code grad, Code mask, Code saved, Code out, const Function& function) {
  if (grad == out && mask == saved) {
    return with_pair(grad, saved, [&]<Code kGrad, Code kSaved> {
      return function.template operator()<kGrad, kSaved, kSaved, kGrad>();
    });
  }
  if constexpr (kMasked) {
    // A 16-bit activation over an 8-bit norm, or the other way round.
    if (grad != Code::e5 || out != Code::e5) return false;
    if (mask == Code::e4 && saved == Code::wide)
      return function.template operator()<Code::e5, Code::e4, Code::wide, Code::e5>();
    if (mask == Code::wide && saved == Code::e4)
      return function.template operator()<Code::e5, Code::wide, Code::e4, Code::e5>();
  } else {
    // The gradient of a sum whose code differs from its addend's.
    if (grad == Code::wide && saved == Code::e4 && out == Code::e5)
      return function.template operator()<Code::wide, Code::e4, Code::e4, Code::e5>();
    if (grad == Code::e5 && saved == Code::wide && out == Code::wide)
      return function.template operator()<Code::e5, Code::wide, Code::wide, Code::wide>();
  }
  return false;
}

template <bool kMasked>
bool launch_norm_grad(const FusedCall& call, Stream stream) {
  NormGradArgs a;
  if (!take_norm_grad<kMasked>(call, a)) return false;
  const Code grad = code_of(call.leaf[0]), saved = code_of(call.leaf[kMasked ? 2 : 1]),
             out = code_of(call.rounder);
  const Grid grid{a.spread.blocks(), kQuickThreads, kGradValues * sizeof(float) * a.channels};
  return with_codes<kMasked>(grad, kMasked ? code_of(call.leaf[1]) : saved, saved, out,
                             [&]<Code kGrad, Code kMask, Code kSaved, Code kOut> {
                               launch(run_norm_grad<kGrad, kMask, kSaved, kOut, kMasked>, grid, stream, a);
                               return true;
                             });
}

// Copies gradients where the activation is above 0; kSum: copies the sum of two gradients.
template <bool kSum>
struct ReluGradArgs {
  QuickSpread spread;
  const uint8_t *dout[kSum ? 2 : 1], *mask;
  Reading reading[kSum ? 2 : 1];
  QuickCodec codec[kSum ? 2 : 1], mask_codec;
  uint32_t top;    // codes above it are no numbers
  CodeTarget sum;  // of the two gradients
  CodeTarget target;
  uint8_t* out;
};

// kFirst, kSecond: codes of the gradients; a single gradient is both, and also the result's kOut.
template <Code kFirst, Code kSecond, Code kOut, Code kMask, bool kSum>
__attribute__((noinline)) static __device__ void relu_grad_long(const ReluGradArgs<kSum>& a, uint32_t group) {
  RangeCount summed, made;
#pragma unroll 1
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint64_t element = uint64_t{group} * kGroup + i;
    float dout = load_long<kFirst>(a.codec[0], a.dout[0], element);
    if constexpr (kSum) {
      dout = el::Add::forward(dout, load_long<kSecond>(a.codec[1], a.dout[1], element));
      dout = round_long(a.sum.codec, dout, summed);
    }
    dout = el::Relu::grad(dout, load_long<kMask>(a.mask_codec, a.mask, element));
    store_long<kOut>(a.out, element, code_long(a.target.codec, dout, made));
  }
  if constexpr (kSum) report_now(summed, a.sum.stats);
  report_now(made, a.target.stats);
}

template <bool kSum>
constexpr uint32_t relu_grad_blocks() {
  return kSum ? 4 : 5;
}

template <Code kFirst, Code kSecond, Code kOut, Code kMask, bool kSum>
__global__ void __launch_bounds__(kQuickThreads, relu_grad_blocks<kSum>())
    run_relu_grad(const __grid_constant__ ReluGradArgs<kSum> a) {
  static_assert(kSum || (kFirst == kOut && kSecond == kOut));
  constexpr int kAtOnce = kSum || kWordsOf<kOut> + kWordsOf < kMask >> 4 ? 2 : 4;
  uint32_t group = blockIdx.x * a.spread.active + threadIdx.x;
  RangeCount seen[2];
  uint32_t most = 0;
  while (group < a.spread.groups) {
    Packed<kFirst> first[kAtOnce];
    Packed<kSecond> second[kAtOnce];
    Packed<kMask> mask[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = nearest(group + static_cast<uint32_t>(u) * a.spread.threads, a.spread.groups);
      first[u] = load_packed<kFirst>(a.dout[0], g);
      if constexpr (kSum) second[u] = load_packed<kSecond>(a.dout[1], g);
      mask[u] = load_packed<kMask>(a.mask, g);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t g = group + static_cast<uint32_t>(u) * a.spread.threads;
      if (g >= a.spread.groups) break;
      Packed<kOut> made;
      if constexpr (kSum) {
        float x[8], y[8];
        unpack<kFirst>(first[u], a.reading[0], x);
        unpack<kSecond>(second[u], a.reading[1], y);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = x[i] + y[i];
        const float largest = largest_of(x);
        if (!(largest <= a.sum.limit)) {
          relu_grad_long<kFirst, kSecond, kOut, kMask, kSum>(a, g);
          continue;
        }
        count_within(a.sum, x, largest, seen[1]);
        made = pack<kOut>(x, a.sum);
        keep_positive<kOut, kMask>(made, mask[u]);
        most = most_of<kOut, true>(most, made);
      } else {
        made = first[u];
        keep_positive<kOut, kMask>(made, mask[u]);
        const uint32_t here = most_of<kOut, true>(0, made);
        if (most_code<kOut>(here) > a.top) {
          relu_grad_long<kFirst, kSecond, kOut, kMask, kSum>(a, g);
          continue;
        }
        most = larger_halves(most, here);
      }
      store_packed<kOut>(a.out, g, made);
    }
    group += kAtOnce * a.spread.threads;
  }
  seen[0].amax = number_of(a.target.codec, most_code<kOut>(most));
  EncodeStats* const stats[2] = {a.target.stats, kSum ? a.sum.stats : nullptr};
  report_all<2>(seen, stats);
}

template <bool kSum>
bool launch_relu_grad(const FusedCall& call, Stream stream) {
  ReluGradArgs<kSum> a;
  constexpr int kCount = kSum ? 2 : 1;
  const Leaf& mask = call.leaf[kCount];
  const Code first = code_of(call.leaf[0]), second = code_of(call.leaf[kCount - 1]),
             out = code_of(call.rounder), above = code_of(mask);
  if (out == Code::none || (!kSum && first != out) || !call.rounder.exact || !all_numbers(mask) ||
      !writes_plain(call.out[0]) || !a.spread.take(call.elements, kGroup, relu_grad_blocks<kSum>()))
    return false;
  if (kSum) {
    const Rounder& rounder = call.stage[0].rounder;
    if (code_of(rounder) != out || !(rounder.codec == call.rounder.codec)) return false;
    a.sum = target_of(rounder, rounder.stats);
  }
  for (int i = 0; i < kCount; ++i) {
    a.dout[i] = call.leaf[i].view.stored.codes;
    a.codec[i] = call.leaf[i].view.stored.codec;
    a.reading[i] = reading_of(a.codec[i]);
  }
  a.mask = mask.view.stored.codes;
  a.mask_codec = mask.view.stored.codec;
  a.target = target_of(call.rounder, call.out[0].stats);
  a.top = call.rounder.codec.spec.max_code;
  a.out = call.out[0].stored.codes;
  const auto run = [&]<Code kFirst, Code kSecond, Code kOut, Code kMask> {
    launch(run_relu_grad<kFirst, kSecond, kOut, kMask, kSum>, {a.spread.blocks(), kQuickThreads}, stream, a);
    return true;
  };
  if (first == out && second == out) {
    return with_pair(out, above, [&]<Code kOut, Code kMask> {
      return run.template operator()<kOut, kOut, kOut, kMask>();
    });
  }
  if constexpr (kSum) {
    // One of the two comes from a sum with another code.
    if (first == Code::e5 && second == Code::wide && out == Code::e5 && above == Code::e4)
      return run.template operator()<Code::e5, Code::wide, Code::e5, Code::e4>();
    if (first == Code::wide && second == Code::e5 && out == Code::e5 && above == Code::e4)
      return run.template operator()<Code::wide, Code::e5, Code::e5, Code::e4>();
    if (first == Code::e5 && second == Code::wide && out == Code::wide && above == Code::wide)
      return run.template operator()<Code::e5, Code::wide, Code::wide, Code::wide>();
    if (first == Code::wide && second == Code::e5 && out == Code::wide && above == Code::wide)
      return run.template operator()<Code::wide, Code::e5, Code::wide, Code::wide>();
  }
  return false;
}

}  // namespace

bool quick_norm_grad(const FusedCall& call, Stream stream) { return launch_norm_grad<false>(call, stream); }
bool quick_norm_relu_grad(const FusedCall& call, Stream stream) {
  return launch_norm_grad<true>(call, stream);
}
bool quick_relu_grad(const FusedCall& call, Stream stream) { return launch_relu_grad<false>(call, stream); }
bool quick_relu_grad_sum(const FusedCall& call, Stream stream) {
  return launch_relu_grad<true>(call, stream);
}

}  // namespace ulp::cuda
