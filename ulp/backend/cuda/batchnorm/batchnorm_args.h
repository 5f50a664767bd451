// What the kernels of batchnorm.h are given, worked out from a call, and what all of them do at their beginning and end. Only for
// files that are compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_codes.h"

namespace ulp::cuda {

inline constexpr uint32_t kQuickThreads = 256;  // of a block
inline constexpr uint32_t kMostQuickChannels = 1024;

// Whether codes of `codec` are those of a type.
inline Code code_of(const QuickCodec& codec, uint32_t bits) {
  const CodecSpec& spec = codec.spec;
  if (!codec.short_in || !codec.short_out || spec.sign_shift != static_cast<int32_t>(bits) - 1)
    return Code::none;
  if (bits == 16 && spec.man == 7 && spec.emin == -126 && spec.max_code == 0x7F7F) return Code::bf16;
  // Powers of two between numbers and the type's that keep both far from fp32's ends.
  if (bits == 8 && spec.man == 3 && spec.emin >= -46 && spec.emin <= 34) return Code::e4;
  if (bits == 8 && spec.man == 2 && spec.emin == -14) return Code::e5;
  // Room above the largest number for 2^23 spacings, and a lift whose inverse is a normal number too.
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
// Of a value that is rounded to nearest-even.
inline Code code_of(const Rounder& rounder) {
  if (!rounder.on || !rounder.quick) return Code::none;
  return code_of(rounder.codec, static_cast<uint32_t>(rounder.codec.spec.sign_shift) + 1);
}
inline bool writes_plain(const WriteView& view) { return view.stored.kind == Stored::plain && !view.sums; }

// The choice of a kernel by a code: `function` is called with the one of kCodes that it is. False where it is none of them, or the
// function says so.
template <Code... kCodes, typename Function>
bool choose_code(Code code, const Function& function) {
  return ((code == kCodes && function.template operator()<kCodes>()) || ...);
}

// The same with the codes of gradients and of what forward kept, in the pairs that kernels are compiled for.
template <typename Function>
bool with_pair(Code grad, Code kept, const Function& function) {
  return choose_code<Code::bf16, Code::e5, Code::wide>(grad, [&]<Code kGrad> {
    if constexpr (kGrad == Code::bf16) {
      return kept == Code::bf16 && function.template operator()<kGrad, Code::bf16>();
    } else if constexpr (kGrad == Code::e5) {
      return choose_code<Code::e4, Code::e5, Code::wide>(
          kept, [&]<Code kKept> { return function.template operator()<kGrad, kKept>(); });
    } else {
      return choose_code<Code::e4, Code::wide>(
          kept, [&]<Code kKept> { return function.template operator()<kGrad, kKept>(); });
    }
  });
}

// What e4 needs beside the type's numbers.
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
  made.many = rounder.many;
  made.least = rounder.least;
  const uint32_t top = spec.man == 3 ? 0x7Eu : spec.man == 2 ? 0x7Bu : spec.max_code;
  made.limit = bits_float(decode_scalar(spec, top < spec.max_code ? top : spec.max_code));
  made.vanishing = bits_float(rounder.vanishing / 2);
  made.stats = stats;
  made.codec = rounder.codec;
  return made;
}

// An input that has a number for each channel: fp32, and for a weight rounded to its operand's format.
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
// Not inlined, so that kernels stay small.
[[maybe_unused]] __attribute__((noinline)) static __device__ float round_apart(const QuickCodec& codec,
                                                                               float x) {
  return bits_float(decode_quick(codec, encode_even(codec, float_bits(x)).code));
}
__device__ inline float ChannelInput::at(uint32_t c) const {
  const float x = data[c];
  return rounds ? round_apart(operand, x) : x;
}
// Reports what rounding an input did. For all threads of one block.
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

// Where threads are: thread q of `threads` takes groups q, q + threads ...; a multiple of the groups of a row of channels.
struct Course {
  uint32_t groups, threads, active, period;

  // False where channels are not whole groups, or are too many.
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

// The group itself, or the last one instead of none: loads that always happen keep no older number alive.
__device__ inline uint32_t nearest(uint32_t group, uint32_t end) { return group < end ? group : end - 1; }

// Reports what the block's threads saw. All kCount must come here, once.
template <int n, uint32_t kCount = kQuickThreads>
__device__ inline void report_all(const Within (&seen)[n], EncodeStats* const (&stats)[n]) {
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
    const uint32_t underflow = warp_sum(there ? warps[k][0][lane] : 0),
                   amax = warp_max(there ? warps[k][1][lane] : 0);
    if (lane != 0) continue;
    if (underflow != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&stats[k]->underflow),
                static_cast<unsigned long long>(underflow));
    if (amax != 0)
      atomicMax(reinterpret_cast<unsigned int*>(&stats[k]->amax), static_cast<unsigned int>(amax));
  }
}

// Eight neighbouring values of shared memory.
__device__ inline void take_eight(const float* at, float (&x)[8]) {
  const float4 low = reinterpret_cast<const float4*>(at)[0], high = reinterpret_cast<const float4*>(at)[1];
  x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
  x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
}

}  // namespace ulp::cuda
