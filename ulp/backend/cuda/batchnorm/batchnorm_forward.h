// Batch norm in forward with the operators fused after it: kernel arguments and the work on one
// group. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_args.h"

namespace ulp::cuda {

// A norm's channel values in shared memory: mean, scale and beta, `stride` of each.
struct Norm {
  ChannelInput gamma, beta;
  const float *mean, *variance;
  float epsilon;

  bool take(const ReadView* view, const Stage& stage) {
    if (!gamma.take(view[0]) || !beta.take(view[1]) || !plain_channels(view[2]) || !plain_channels(view[3]))
      return false;
    mean = floats_of(view[2]);
    variance = floats_of(view[3]);
    epsilon = stage.epsilon;
    return true;
  }
};

// The first kNorms of the kLeaves inputs are normalised; two inputs are added.
template <int kLeaves, int kNorms>
struct ForwardArgs {
  QuickSpread spread;
  uint32_t channels;
  const uint8_t* in[kLeaves];
  Reading reading[kLeaves];
  QuickCodec codec[kLeaves];
  Norm norm[kNorms];
  CodeTarget norm_target[kNorms];  // of the norms that are rounded before the addition
  CodeTarget target;               // of the last rounding
  EncodeStats* relu_stats;
  uint8_t* out;
};

// The slow path for a group with a special value: element by element, as the general kernels do.
// kFirst, kSecond: codes of the inputs; a single input is both. kOut: code of the result and of the
// sum.
template <Code kFirst, Code kSecond, Code kOut, int kLeaves, int kNorms, bool kRelu>
__attribute__((noinline)) static __device__ void forward_long(const ForwardArgs<kLeaves, kNorms>& a,
                                                              const float* tile, uint32_t stride,
                                                              uint32_t group, uint32_t channel) {
  RangeCount norm[2], sum, relu;
#pragma unroll 1
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint64_t element = uint64_t{group} * kGroup + i;
    float x[kLeaves];
#pragma unroll
    for (int k = 0; k < kLeaves; ++k) {
      x[k] = k == 0 ? load_long<kFirst>(a.codec[k], a.in[k], element)
                    : load_long<kSecond>(a.codec[k], a.in[k], element);
      if (k < kNorms) {
        const float* at = tile + 3 * k * stride + channel + i;
        x[k] = elementwise::batch_norm(x[k], at[0], at[stride], at[2 * stride]);
        if (kLeaves > 1) x[k] = round_long(a.norm_target[k].codec, x[k], norm[k]);
      }
    }
    const float y = kLeaves > 1 ? elementwise::Add::forward(x[0], x[kLeaves - 1]) : x[0];
    uint32_t code = code_long(a.target.codec, y, sum);
    if constexpr (kRelu) {
      const float z = elementwise::Relu::forward(bits_float(decode_quick(a.target.codec, code)));
      code = code_long(a.target.codec, z, relu);
    }
    store_long<kOut>(a.out, element, code);
  }
  if constexpr (kLeaves > 1) {
#pragma unroll
    for (int k = 0; k < kNorms; ++k) report_now(norm[k], a.norm_target[k].stats);
  }
  report_now(sum, a.target.stats);
  if constexpr (kRelu) report_now(relu, a.relu_stats);
}

// The range events that a thread counted: of norms that are added to something, of the last
// rounding, of the activation.
struct ForwardSeen {
  RangeCount part[4];
  uint32_t most_relu = 0;
};

// Processes a group with codes `first` and `second`. The channel values are in registers, and in
// `tile` too.
template <Code kFirst, Code kSecond, Code kOut, int kLeaves, int kNorms, bool kRelu>
__device__ inline void forward_group(const ForwardArgs<kLeaves, kNorms>& a, const float* tile,
                                     uint32_t stride, uint32_t g, uint32_t channel,
                                     const Packed<kFirst>& first, const Packed<kSecond>& second,
                                     const float (&mean)[kNorms][8], const float (&scale)[kNorms][8],
                                     const float (&beta)[kNorms][8], ForwardSeen& seen) {
  // The code that a norm is rounded to before it is added.
  constexpr Code kNorm = kFirst == kOut && kSecond == kOut ? kOut : Code::none;
  float x[kLeaves][8], most[kNorms] = {};
  bool fine = true;
  unpack<kFirst>(first, a.reading[0], x[0]);
  if constexpr (kLeaves > 1) unpack<kSecond>(second, a.reading[1], x[1]);
#pragma unroll
  for (int k = 0; k < kNorms; ++k) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[k][i] = (x[k][i] - mean[k][i]) * scale[k][i] + beta[k][i];
    if constexpr (kLeaves > 1) {
      most[k] = largest_of(x[k]);
      fine = fine && most[k] <= a.norm_target[k].limit;
    }
  }
  Packed<kOut> made;
  if constexpr (kLeaves > 1) {
    uint32_t vanished[kNorms];
#pragma unroll
    for (int k = 0; k < kNorms; ++k) {
      vanished[k] = vanishing_in(a.norm_target[k], x[k]);
      round_within<kNorm>(a.norm_target[k], x[k]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[0][i] = x[0][i] + x[1][i];
    const float sum = largest_of(x[0]);
    fine = fine && sum <= a.target.limit;
    if (fine) {
#pragma unroll
      for (int k = 0; k < kNorms; ++k) {
        seen.part[k].underflow += vanished[k];
        seen.part[k].add_most(most[k]);
      }
      count_within(a.target, x[0], sum, seen.part[2]);
    }
  } else {
    const float sum = largest_of(x[0]);
    fine = sum <= a.target.limit;
    if (fine) count_within(a.target, x[0], sum, seen.part[2]);
  }
  if (!fine) {
    forward_long<kFirst, kSecond, kOut, kLeaves, kNorms, kRelu>(a, tile, stride, g, channel);
    return;
  }
  if constexpr (kRelu) {
    made = pack_relu<kOut>(x[0], a.target);
    seen.most_relu = most_of<kOut, false>(seen.most_relu, made);
  } else {
    made = pack<kOut>(x[0], a.target);
  }
  store_packed<kOut>(a.out, g, made);
}

// Called by all threads of a block, once.
template <Code kOut, int kLeaves, int kNorms, bool kRelu, uint32_t kCount>
__device__ inline void report_forward(const ForwardArgs<kLeaves, kNorms>& a, ForwardSeen& seen) {
  if constexpr (kRelu) seen.part[3].amax = number_of(a.target.codec, most_code<kOut>(seen.most_relu));
  EncodeStats* const stats[4] = {kLeaves > 1 ? a.norm_target[0].stats : nullptr,
                                 kLeaves > 1 && kNorms > 1 ? a.norm_target[kNorms - 1].stats : nullptr,
                                 a.target.stats, kRelu ? a.relu_stats : nullptr};
  report_all<4, kCount>(seen.part, stats);
}

// Range events of rounding the norms' inputs: the first blocks report one input each. Called by all
// threads of a block, once.
template <int kLeaves, int kNorms>
__device__ inline void report_inputs(const ForwardArgs<kLeaves, kNorms>& a) {
#pragma unroll
  for (int k = 0; k < 2 * kNorms; ++k) {
    if (blockIdx.x != static_cast<uint32_t>(k) % gridDim.x) continue;
    report_channels(k % 2 == 0 ? a.norm[k / 2].gamma : a.norm[k / 2].beta, a.channels);
  }
}

// Resident blocks per multiprocessor. mixed: inputs and output have different codes.
template <int kLeaves, int kNorms>
constexpr uint32_t forward_blocks(bool mixed) {
  return kLeaves == 1 ? (mixed ? 3 : 4) : kNorms == 1 ? 3 : 2;
}

// Fills in the kernel's arguments. kBegin: the input that is normalised first. False if these
// kernels do not support the call.
template <int kLeaves, int kNorms, bool kRelu, int kBegin>
bool take_forward(const FusedCall& call, ForwardArgs<kLeaves, kNorms>& a) {
  const auto leaf = [&](int i) -> const Leaf& { return call.leaf[(i + kBegin) % kLeaves]; };
  // Stages: the norms, the sum, the activation. The last stage's rounder is the call's.
  constexpr int kStages = kNorms + (kLeaves > 1 ? 1 : 0) + (kRelu ? 1 : 0);
  const auto rounder = [&](int i) -> const Rounder& {
    return i + 1 == kStages ? call.rounder : call.stage[i].rounder;
  };
  const auto stats = [&](int i) {
    return i + 1 == kStages ? call.out[0].stats : call.stage[i].rounder.stats;
  };
  const Code first = code_of(leaf(0)), second = code_of(leaf(kLeaves - 1)), out = code_of(call.rounder);
  const bool mixed = first != out || second != out;
  if (!writes_plain(call.out[0]) ||
      !a.spread.take(call.elements, call.channels, forward_blocks<kLeaves, kNorms>(mixed)))
    return false;
  constexpr int kLast = kStages - (kRelu ? 2 : 1);  // the last stage that rounds
  if (code_of(rounder(kLast)) != out) return false;
  if (kRelu && !(call.rounder.exact && call.rounder.codec == rounder(kLast).codec)) return false;
  if (kLeaves > 1) {
    // Kernels with a single code round norms to that; mixed ones to e4 or wide.
    for (int i = 0; i < kNorms; ++i) {
      const Code norm = code_of(rounder(i));
      if (mixed ? norm != Code::e4 && norm != Code::wide : norm != out) return false;
    }
  }
  for (int i = 0; i < kNorms; ++i) {
    if (!a.norm[i].take(call.view + 4 * i, call.stage[i])) return false;
    a.norm_target[i] = target_of(rounder(i), stats(i));
  }
  for (int i = 0; i < kLeaves; ++i) {
    const StoredView& stored = leaf(i).view.stored;
    a.in[i] = stored.codes;
    a.reading[i] = reading_of(stored.codec);
    a.codec[i] = stored.codec;
  }
  a.target = target_of(rounder(kLast), stats(kLast));
  a.relu_stats = call.out[0].stats;
  a.out = call.out[0].stored.codes;
  a.channels = static_cast<uint32_t>(call.channels);
  return true;
}

}  // namespace ulp::cuda
