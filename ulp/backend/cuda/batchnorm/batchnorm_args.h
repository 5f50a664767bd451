// Arguments of the kernels of batchnorm.h, derived from a call, and what all kernels do at their
// beginning and end. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_codes.h"

namespace ulp::cuda {

inline constexpr uint32_t kQuickThreads = 256;  // of a block
inline constexpr uint32_t kMostQuickChannels = 1024;

// The hardware type that codes of `codec` match.
inline Code code_of(const QuickCodec& codec, uint32_t bits) {
  const CodecSpec& spec = codec.spec;
  if (!codec.short_in || !codec.short_out || spec.sign_shift != static_cast<int32_t>(bits) - 1)
    return Code::none;
  if (bits == 16 && spec.man == 7 && spec.emin == -126 && spec.max_code == 0x7F7F) return Code::bf16;
  // The power of two between the values and the type's must keep both far from fp32's limits.
  if (bits == 8 && spec.man == 3 && spec.emin >= -46 && spec.emin <= 34) return Code::e4;
  if (bits == 8 && spec.man == 2 && spec.emin == -14) return Code::e5;
  // Needs room above the largest value for 2^23 spacings, and a lift whose inverse is a normal
  // number too.
  if (bits == 16 && spec.man >= 7 && spec.max_code == 0x7FFF && codec.lift <= 0x1p126f &&
      decode_scalar(spec, spec.max_code) < kQuickLimit)
    return Code::wide;
  return Code::none;
}
inline Code code_of(const Leaf& leaf) {
  const StoredView& stored = leaf.view.stored;
  if (!leaf.quick || stored.fp32) return Code::none;
  const Code code = code_of(stored.codec, stored.bits);
  return code == Code::bf16 && !leaf.same ? Code::none : code;
}
// The same for a value rounded to nearest even.
inline Code code_of(const Rounder& rounder) {
  if (!rounder.on || !rounder.quick) return Code::none;
  return code_of(rounder.codec, static_cast<uint32_t>(rounder.codec.spec.sign_shift) + 1);
}
inline bool writes_plain(const WriteView& view) { return view.stored.kind == Stored::plain && !view.sums; }

// Selects a kernel by code: calls `function` with whichever of kCodes it is. False if it is none of
// them, or if the function returns false.
template <Code... kCodes, typename Function>
bool choose_code(Code code, const Function& function) {
  return ((code == kCodes && function.template operator()<kCodes>()) || ...);
}

// The same for the codes of a gradient and of a tensor saved for backward, in the pairs that
// kernels are compiled for.
template <typename Function>
bool with_pair(Code grad, Code saved, const Function& function) {
  return choose_code<Code::bf16, Code::e5, Code::wide>(grad, [&]<Code kGrad> {
    if constexpr (kGrad == Code::bf16) {
      return saved == Code::bf16 && function.template operator()<kGrad, Code::bf16>();
    } else if constexpr (kGrad == Code::e5) {
      return choose_code<Code::e4, Code::e5, Code::wide>(
          saved, [&]<Code kSaved> { return function.template operator()<kGrad, kSaved>(); });
    } else {
      return choose_code<Code::e4, Code::wide>(
          saved, [&]<Code kSaved> { return function.template operator()<kGrad, kSaved>(); });
    }
  });
}

// The factor from the hardware type's e4 values to the format's.
inline float lift_of(const QuickCodec& codec) {
  if (codec.spec.man != 3) return 1;
  return bits_float(static_cast<uint32_t>(codec.spec.emin + 6 + 127) << 23);
}
inline Reading reading_of(const QuickCodec& codec) {
  Reading made{lift_of(codec), 0, 0};
  if (codec.spec.sign_shift == 15 && codec.spec.max_code == 0x7FFF) {
    made.lift = codec.lift;
    made.shift = 16 - codec.shift;
    made.mask = 0x80000000u | 0x7FFFu << codec.shift;
  }
  return made;
}
inline CodeTarget target_of(const Rounder& rounder, EncodeStats* stats) {
  const CodecSpec& spec = rounder.codec.spec;
  CodeTarget made;
  made.reading = reading_of(rounder.codec);
  made.drop = 1 / made.reading.lift;
  made.wide = spec.sign_shift == 15;
  made.even = rounder.even;
  const uint32_t top = spec.man == 3 ? 0x7Eu : spec.man == 2 ? 0x7Bu : spec.max_code;
  made.limit = bits_float(decode_scalar(spec, top < spec.max_code ? top : spec.max_code));
  made.vanishing = bits_float(rounder.vanishing / 2);
  made.stats = stats;
  made.codec = rounder.codec;
  return made;
}

// A per-channel input: fp32; a weight is rounded to its operand format.
struct ChannelInput {
  const float* data;
  EncodeStats* stats;
  QuickCodec operand;
  bool rounds;

  bool take(const ReadView& view) {
    if (!view.stored.fp32 || view.stored.kind != Stored::plain || view.rounds_s2fp8 || view.rounds_scaled ||
        (view.rounds && view.mode != Round::nearest_even))
      return false;
    data = reinterpret_cast<const float*>(view.stored.codes);
    stats = view.stats;
    operand = view.operand;
    rounds = view.rounds;
    return true;
  }
  __device__ float at(uint32_t c) const;
};
// Not inlined, to keep kernels small.
[[maybe_unused]] __attribute__((noinline)) static __device__ float round_apart(const QuickCodec& codec,
                                                                               float x) {
  return bits_float(decode_quick(codec, encode_even(codec, float_bits(x)).code));
}
__device__ inline float ChannelInput::at(uint32_t c) const {
  const float x = data[c];
  return rounds ? round_apart(operand, x) : x;
}
// Reports the range events of rounding an input. Called by all threads of one block.
[[maybe_unused]] __attribute__((noinline)) static __device__ void report_channels(const ChannelInput& input,
                                                                                  uint32_t channels) {
  if (!input.rounds || input.stats == nullptr) return;
  RangeCount seen;
  for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x)
    round_long(input.operand, input.data[c], seen);
  report(seen, input.stats);
}
inline bool plain_channels(const ReadView& view) {
  return view.stored.fp32 && view.stored.kind == Stored::plain && !view.rounds && !view.rounds_s2fp8 &&
         !view.rounds_scaled;
}
inline const float* floats_of(const ReadView& view) {
  return reinterpret_cast<const float*>(view.stored.codes);
}

// How threads are distributed: thread q of `threads` takes groups q, q + threads, ... `threads` is
// a multiple of the groups in a row of channels.
struct QuickSpread {
  uint32_t groups, threads, active, period;

  // False if channels are no multiple of a group, or too many.
  bool take(uint64_t elements, uint64_t channels, uint32_t blocks_at_once) {
    if (elements % kGroup != 0 || channels % kGroup != 0 || channels > kMostQuickChannels ||
        elements / kGroup >= 1u << 30)
      return false;
    groups = static_cast<uint32_t>(elements / kGroup);
    period = static_cast<uint32_t>(channels / kGroup);
    active = kQuickThreads / period * period;
    const uint32_t blocks = blocks_for(groups, active, kProcessors * blocks_at_once);
    threads = blocks * active;
    return true;
  }
  uint32_t blocks() const { return threads / active; }
};

// The group, or the last one if it is beyond the end. An unconditional load does not keep an older
// value alive in its register.
__device__ inline uint32_t nearest(uint32_t group, uint32_t end) { return group < end ? group : end - 1; }

// Reports what the block's threads counted of groups within the limit, in which nothing overflows
// or is NaN. All kCount threads must call it, once.
template <int n, uint32_t kCount = kQuickThreads>
__device__ inline void report_all(const RangeCount (&seen)[n], EncodeStats* const (&stats)[n]) {
  __shared__ uint32_t warps[n][2][kCount / 32];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < n; ++k) {
    if (stats[k] == nullptr) continue;
    const uint32_t underflow = warp_sum(seen[k].underflow), amax = warp_max(seen[k].amax);
    if (lane == 0) {
      warps[k][0][warp] = underflow;
      warps[k][1][warp] = amax;
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < n; ++k) {
    if (warp != static_cast<uint32_t>(k) || stats[k] == nullptr) continue;
    const bool there = lane < kCount / 32;
    const RangeCount all = {0, warp_sum(there ? warps[k][0][lane] : 0), 0,
                            warp_max(there ? warps[k][1][lane] : 0)};
    if (lane == 0) all.flush(*stats[k]);
  }
}

// Eight neighbouring values from shared memory.
__device__ inline void take_eight(const float* at, float (&x)[8]) {
  const float4 low = reinterpret_cast<const float4*>(at)[0], high = reinterpret_cast<const float4*>(at)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

}  // namespace ulp::cuda
