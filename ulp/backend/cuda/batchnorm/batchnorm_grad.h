// The gradient of batch norm, alone or through an activation: kernel arguments and the work on one
// group. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_args.h"

namespace ulp::cuda {

// Whether keep_positive can read an activation.
inline bool all_numbers(const Leaf& leaf) { return code_of(leaf) == Code::bf16 || leaf.ordinary; }

struct NormGradArgs {
  QuickSpread spread;
  uint32_t channels;
  const uint8_t *dout, *mask, *x;  // mask: the activation's output
  Reading dout_reading, x_reading;
  QuickCodec dout_codec, mask_codec, x_codec;
  ChannelInput gamma;
  const float *mean, *variance, *sum, *product;
  float epsilon, rows;
  CodeTarget masked;  // the activation's gradient, which is not stored
  CodeTarget target;
  uint8_t* out;
};

// Channel values in shared memory: mean, inverse, scale, and the means of the two sums.
inline constexpr uint32_t kGradValues = 5;

// kGrad, kMask, kSaved: codes of the inputs; without an activation kMask is kSaved. kOut: code of the
// result.
template <Code kGrad, Code kMask, Code kSaved, Code kOut, bool kMasked>
__attribute__((noinline)) static __device__ void norm_grad_long(const NormGradArgs& a, const float* tile,
                                                                uint32_t stride, uint32_t group,
                                                                uint32_t channel) {
  RangeCount masked, made;
#pragma unroll 1
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint64_t element = uint64_t{group} * kGroup + i;
    float dout = load_long<kGrad>(a.dout_codec, a.dout, element);
    if constexpr (kMasked) {
      dout = elementwise::Relu::grad(dout, load_long<kMask>(a.mask_codec, a.mask, element));
      dout = round_long(a.masked.codec, dout, masked);
    }
    const float* at = tile + channel + i;
    const float y = elementwise::batch_norm_grad(dout, load_long<kSaved>(a.x_codec, a.x, element), at[0],
                                                 at[stride], at[2 * stride], at[3 * stride], at[4 * stride]);
    store_long<kOut>(a.out, element, code_long(a.target.codec, y, made));
  }
  if constexpr (kMasked) report_now(masked, a.masked.stats);
  report_now(made, a.target.stats);
}

// Processes a group with codes `dout`, already masked, and `saved`. The channel values are in
// registers, and in `tile` too.
template <Code kGrad, Code kMask, Code kSaved, Code kOut, bool kMasked>
__device__ inline void norm_grad_group(const NormGradArgs& a, const float* tile, uint32_t stride, uint32_t g,
                                       uint32_t channel, const Packed<kGrad>& dout,
                                       const Packed<kSaved>& saved, const float (&value)[kGradValues][8],
                                       bool watches, RangeCount& made, uint32_t& most_masked) {
  float y[8], x[8];
  unpack<kGrad>(dout, a.dout_reading, y);
  unpack<kSaved>(saved, a.x_reading, x);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y[i] = value[2][i] * ((y[i] - value[3][i]) - ((x[i] - value[0][i]) * value[1][i]) * value[4][i]);
  }
  const float most = largest_of(y);
  if (!(most <= a.target.limit)) {
    norm_grad_long<kGrad, kMask, kSaved, kOut, kMasked>(a, tile, stride, g, channel);
    return;
  }
  if (watches) most_masked = most_of<kGrad, true>(most_masked, dout);
  count_within(a.target, y, most, made);
  store_packed<kOut>(a.out, g, pack<kOut>(y, a.target));
}

inline constexpr uint32_t kGradBlocks = 2;

// Fills in the kernel's arguments. False if these kernels do not support the call.
template <bool kMasked>
bool take_norm_grad(const FusedCall& call, NormGradArgs& a) {
  const Leaf &dout = call.leaf[0], &mask = call.leaf[kMasked ? 1 : 0], &x = call.leaf[kMasked ? 2 : 1];
  const Stage& stage = call.stage[kMasked ? 1 : 0];
  const Code grad = code_of(dout);
  if (!writes_plain(call.out[0]) || !a.gamma.take(call.view[0]) ||
      !a.spread.take(call.elements, call.channels, kGradBlocks))
    return false;
  for (int i = 1; i < 5; ++i) {
    if (!plain_channels(call.view[i])) return false;
  }
  if (kMasked) {
    const Rounder& rounder = call.stage[0].rounder;
    if (!all_numbers(mask) || code_of(rounder) != grad || !rounder.exact) return false;
    a.masked = target_of(rounder, rounder.stats);
  }
  a.channels = static_cast<uint32_t>(call.channels);
  a.dout = dout.view.stored.codes;
  a.mask = mask.view.stored.codes;
  a.x = x.view.stored.codes;
  a.dout_codec = dout.view.stored.codec;
  a.mask_codec = mask.view.stored.codec;
  a.x_codec = x.view.stored.codec;
  a.dout_reading = reading_of(a.dout_codec);
  a.x_reading = reading_of(a.x_codec);
  a.mean = floats_of(call.view[1]);
  a.variance = floats_of(call.view[2]);
  a.sum = floats_of(call.view[3]);
  a.product = floats_of(call.view[4]);
  a.epsilon = stage.epsilon;
  a.rows = stage.rows;
  if (code_of(call.rounder) == Code::none) return false;
  a.target = target_of(call.rounder, call.out[0].stats);
  a.out = call.out[0].stored.codes;
  return true;
}

}  // namespace ulp::cuda
