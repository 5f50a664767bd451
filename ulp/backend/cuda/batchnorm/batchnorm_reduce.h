// Batch norm's reductions: kernel arguments, and how the sums of threads and of blocks are
// combined. The order depends on the shape alone. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/batchnorm/batchnorm_args.h"

namespace ulp::cuda {

inline constexpr uint32_t kSumThreads = SliceSpread::kThreads;
// Values that a thread sums: two per channel. In the combining steps each has a warp.
inline constexpr uint32_t kSums = 2 * kGroup;
static_assert(kSumThreads == 32 * kSums);

struct ChannelOutput {
  float* data;
  bool sums, adds;

  // before: the present value, if the result is added to it.
  __device__ void write(uint32_t c, uint32_t micro_batch, float before, float made) const {
    data[c] = sums && (adds || micro_batch > 0) ? before + made : made;
  }
};

struct SumArgs {
  SliceSpread spread;
  uint32_t ticket;
  const StepState* state;
  const uint8_t *dout, *mask, *x;  // mask: the activation's output
  Reading dout_reading, x_reading;
  QuickCodec dout_codec, x_codec, masked;
  EncodeStats* masked_stats;  // of the activation's gradient, which is not stored
  uint32_t top;               // codes above it are no numbers, or not the hardware's
  float lift, drop;           // of x if it is e4, and 1 / lift
  double share;               // of a pixel: 1 / pixels
  const float *mean, *variance;
  float epsilon;
  float* partial;
  ChannelOutput out[2];
};

__device__ inline float4 load_fresh(const float4* at) {
#if defined(__CUDA_ARCH__)
  return __ldcg(at);
#else
  return *at;
#endif
}
// Adds to a count of blocks and returns the previous value. A thread that sees other blocks' counts
// also sees what they wrote before counting.
__device__ inline uint32_t count_up(uint32_t* at, uint32_t more) {
#if defined(__CUDA_ARCH__)
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(at), "r"(more)
               : "memory");
  return before;
#else
  return atomicAdd(at, more);
#endif
}

// Sums over lanes that are multiples of the width apart; the first lanes get the result.
template <typename T>
__device__ inline T reduce_lanes(T mine, uint32_t lane, const SliceSpread& spread) {
  for (uint32_t lanes = spread.by_width(32); lanes > 1;) {
    const uint32_t half = (lanes + 1) / 2;
    const T other = __shfl_down_sync(0xFFFFFFFFu, mine, half * spread.width);
    if (lane + half * spread.width < lanes * spread.width) mine += other;
    lanes = half;
  }
  return mine;
}

// Combines the sums of a block's threads into a row of partial results. `shared` has room for the
// sums of all threads.
__device__ inline void reduce_threads(const SumArgs& a, float* shared, const float (&first)[8],
                                      const float (&second)[8]) {
  const SliceSpread& spread = a.spread;
#pragma unroll
  for (uint32_t i = 0; i < kGroup; ++i) {
    shared[i * kSumThreads + threadIdx.x] = first[i];
    shared[(kGroup + i) * kSumThreads + threadIdx.x] = second[i];
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t span = spread.by_width(32) * spread.width, end = spread.slots * spread.width;
  const float* from = shared + warp * kSumThreads;
  float mine = 0;
  constexpr uint32_t kAtOnce = 8;
  for (uint32_t at = lane < span ? lane : end; at < end; at += kAtOnce * span) {
    float x[kAtOnce];
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) x[u] = at + u * span < end ? from[at + u * span] : 0.0f;
    mine += ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  }
  mine = reduce_lanes(mine, lane, spread);
  const uint32_t row = spread.by_slices(blockIdx.x), slice = blockIdx.x - row * spread.slices;
  if (lane < spread.width)
    a.partial[((uint64_t{slice} * spread.rows + row) * kSums + warp) * spread.width + lane] = mine;
}

// Combines the rows of a slice. The block's first threads get the two values of their channel.
// `shared` as above; pivots: of the slice's channels; variance: of the thread's own channel.
template <bool kMoments>
__device__ inline void reduce_rows(const SumArgs& a, float* shared, const float* pivots, float variance,
                                   float (&made)[2]) {
  __shared__ double totals[kSums * SliceSpread::kWidest];
  const SliceSpread& spread = a.spread;
  const uint32_t slice = blockIdx.x - spread.by_slices(blockIdx.x) * spread.slices;
  const uint32_t wide = spread.width * kGroup;
  // A thread takes four neighbouring columns and every `parts`-th row.
  const uint32_t columns = kSums / 4 * spread.width, parts = spread.by_width(kSumThreads / (kSums / 4)),
                 part = spread.by_width(threadIdx.x / (kSums / 4));
  const float4* from = reinterpret_cast<const float4*>(a.partial) + uint64_t{slice} * spread.rows * columns +
                       (threadIdx.x - part * columns);
  float4 sum = make_float4(0, 0, 0, 0);
  constexpr uint32_t kAtOnce = 9;
  for (uint32_t row = part < parts ? part : spread.rows; row < spread.rows; row += kAtOnce * parts) {
    float4 some[kAtOnce];
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint32_t r = row + u * parts;
      some[u] = r < spread.rows ? load_fresh(from + uint64_t{r} * columns) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      sum.x += some[u].x;
      sum.y += some[u].y;
      sum.z += some[u].z;
      sum.w += some[u].w;
    }
  }
  reinterpret_cast<float4*>(shared)[threadIdx.x] = sum;
  __syncthreads();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t lanes = spread.by_width(32), place = spread.by_width(lane),
                 side = lane - place * spread.width;
  double mine = 0;
  for (uint32_t k = place < lanes ? place : parts; k < parts; k += lanes)
    mine += static_cast<double>(shared[(k * kSums + warp) * spread.width + side]);
  mine = reduce_lanes(mine, lane, spread);
  if (lane < spread.width) totals[warp * SliceSpread::kWidest + lane] = mine;
  __syncthreads();
  if (threadIdx.x >= wide) return;
  const uint32_t at = threadIdx.x % kGroup * SliceSpread::kWidest + threadIdx.x / kGroup;
  const double first = totals[at], second = totals[kGroup * SliceSpread::kWidest + at], lift = a.lift;
  double number[2];
  if constexpr (kMoments) {
    const double mean = first * a.share, about = second - first * mean;
    number[0] = (static_cast<double>(pivots[threadIdx.x]) + mean) * lift;
    number[1] = (about < 0 ? 0 : about) * a.share * (lift * lift);  // NaN stays
  } else {
    number[0] = first;
    number[1] = second * (static_cast<double>(elementwise::batch_inv(variance, a.epsilon)) * lift);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) made[i] = settle_nan(static_cast<float>(number[i]));
}

// Whether a code means something else to the hardware.
template <Code kCode>
__device__ inline bool misread(const Packed<kCode>& packed) {
  if constexpr (kHalves<kCode>) return false;
  constexpr uint32_t kBeyond = kCode == Code::e4 ? 0x01010101u : 0x04040404u;
  uint32_t any = 0;
#pragma unroll
  for (int i = 0; i < kWordsOf<kCode>; ++i) any |= (packed.word[i] & 0x7F7F7F7Fu) + kBeyond;
  return (any & 0x80808080u) != 0;
}
// The values of a group with such codes, times `drop`.
template <Code kCode>
__device__ inline void unpack_long(const QuickCodec& codec, const Packed<kCode>& packed, float drop,
                                   float (&x)[8]) {
#pragma unroll 1
  for (int i = 0; i < 8; ++i) put(x, i, bits_float(decode_quick(codec, code_at(packed, i))) * drop);
}
template <Code kCode>
__device__ inline void unpack_any(const QuickCodec& codec, const Reading& reading,
                                  const Packed<kCode>& packed, float drop, float (&x)[8]) {
  unpack_units<kCode>(packed, reading, x);
  if (misread<kCode>(packed)) unpack_long<kCode>(codec, packed, drop, x);
}

// The activation's gradient if a code is no number: rounded as if it were stored.
template <Code kCode>
__device__ inline void round_masked(const SumArgs& a, const Packed<kCode>& packed, float (&x)[8]) {
  RangeCount seen;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const float one = bits_float(decode_quick(a.dout_codec, code_at(packed, i)));
    put(x, i, round_long(a.masked, one, seen));
  }
  report_now(seen, a.masked_stats);
}

// Groups whose loads are in flight at once.
template <Code kGrad, Code kMask, Code kSaved, bool kMasked>
constexpr int sums_at_once() {
  return kWordsOf<kGrad> + kWordsOf<kSaved> + (kMasked ? kWordsOf<kMask> : 0) > (kMasked ? 6 : 8) ? 1 : 2;
}

// Pivots: a value near each of the slice's channels, computed by the block's first threads, so that
// squared distances from it are small. It is the mean of some pixels, with as few mantissa bits as
// the pixels have, so that most distances are exact. Values that would carry sums out of range are
// not used.
template <Code kCode>
__device__ inline void choose_pivots(const SumArgs& a, uint32_t side, float* pivots) {
  constexpr uint32_t kSome = 4;
  const SliceSpread& spread = a.spread;
  Packed<kCode> raw[kSome];
#pragma unroll
  for (uint32_t k = 0; k < kSome; ++k) {
    const uint32_t pixel = spread.pixels / (2 * kSome) * (2 * k + 1);
    raw[k] = load_packed<kCode>(a.x, pixel * spread.period + side);
  }
  float sum[8] = {};
#pragma unroll
  for (uint32_t k = 0; k < kSome; ++k) {
    float x[8];
    // A misread code gives another pivot, which does as well.
    unpack_units<kCode>(raw[k], a.x_reading, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] += x[i];
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float mean = bits_float(float_bits(sum[i] * (1.0f / kSome)) & 0xFFFF0000u);
    pivots[i] = fabsf(mean) < 0x1p62f ? mean : 0.0f;
  }
}

inline bool take_outputs(const FusedCall& call, SumArgs& a) {
  for (int i = 0; i < 2; ++i) {
    const WriteView& out = call.out[i];
    if (!out.stored.fp32 || out.stored.kind != Stored::plain) return false;
    a.out[i] = {reinterpret_cast<float*>(out.stored.codes), out.sums, out.adds};
  }
  a.state = call.state;
  a.partial = call.partial;
  a.ticket = call.ticket;
  return true;
}

// Fills in the kernel's arguments. False if these kernels do not support the call.
inline bool take_stats(const FusedCall& call, SumArgs& a) {
  if (code_of(call.leaf[0]) == Code::none || !take_outputs(call, a) ||
      !a.spread.take(call.elements, call.channels))
    return false;
  a.x = call.leaf[0].view.stored.codes;
  a.x_codec = call.leaf[0].view.stored.codec;
  a.x_reading = reading_of(a.x_codec);
  a.lift = lift_of(a.x_codec);
  a.drop = 1 / a.lift;
  a.share = 1.0 / a.spread.pixels;
  return true;
}

// kMasked: through an activation.
template <bool kMasked>
bool take_norm_sums(const FusedCall& call, SumArgs& a) {
  const Leaf &dout = call.leaf[0], &mask = call.leaf[kMasked ? 1 : 0], &x = call.leaf[kMasked ? 2 : 1];
  const Code grad = code_of(dout);
  if (!take_outputs(call, a) || !plain_channels(call.view[0]) || !plain_channels(call.view[1]) ||
      !a.spread.take(call.elements, call.channels))
    return false;
  if (kMasked) {
    const Rounder& rounder = call.stage[0].rounder;
    if ((code_of(mask) != Code::bf16 && !mask.ordinary) || code_of(rounder) != grad || !rounder.exact)
      return false;
    a.masked = rounder.codec;
    a.masked_stats = rounder.stats;
    const uint32_t top = grad == Code::e5 ? 0x7Bu : 0x7FFFu;
    a.top = rounder.codec.spec.max_code < top ? rounder.codec.spec.max_code : top;
  }
  a.dout = dout.view.stored.codes;
  a.mask = mask.view.stored.codes;
  a.x = x.view.stored.codes;
  a.dout_codec = dout.view.stored.codec;
  a.x_codec = x.view.stored.codec;
  a.dout_reading = reading_of(a.dout_codec);
  a.x_reading = reading_of(a.x_codec);
  a.lift = lift_of(a.x_codec);
  a.drop = 1 / a.lift;
  a.mean = floats_of(call.view[0]);
  a.variance = floats_of(call.view[1]);
  a.epsilon = call.stage[kMasked ? 1 : 0].epsilon;
  return true;
}

}  // namespace ulp::cuda
