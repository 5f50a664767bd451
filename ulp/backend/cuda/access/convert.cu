#include "ulp/backend/cuda/access/convert.h"

#include "ulp/backend/cuda/access/convert_s2fp8.h"
#include "ulp/backend/cuda/access/operand_codes.h"
#include "ulp/backend/cuda/access/single.h"
#include "ulp/backend/cuda/access/stochastic_round.h"
#include "ulp/backend/cuda/elementwise/fused_groups.h"

namespace ulp::cuda {
namespace {

// Rows without padding: groups of the tensor are groups of the array.
__global__ void decode_groups(ReadView view, const StepState* state, uint64_t first_group, uint64_t groups,
                              DecodedType target, QuickCodec codec, uint8_t* out) {
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups;
       g += uint64_t{gridDim.x} * blockDim.x) {
    float x[8];
    load(view, *state, first_group + g, x, seen);
    store_targets(target, codec, out, g, count_in(view.stored, first_group + g), x);
  }
  if (view.rounds) report(seen, view.stats);
}

// How many groups a thread has in flight at once. A block takes neighbouring ones.
constexpr uint32_t kAtOnce = 4;

// Calls load(slot, group) for the thread's groups that exist, then work(slot, group).
template <typename Load, typename Work>
__device__ inline void for_groups(uint64_t groups, const Load& load, const Work& work) {
  const uint64_t piece = uint64_t{kAtOnce} * blockDim.x;
  for (uint64_t first = blockIdx.x * piece; first < groups; first += gridDim.x * piece) {
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint64_t at = first + u * blockDim.x + threadIdx.x;
      if (at < groups) load(u, at);
    }
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      const uint64_t at = first + u * blockDim.x + threadIdx.x;
      if (at < groups) work(u, at);
    }
  }
}

// The codes of four elements.
template <int kWidth>
__device__ inline void load_run(const uint8_t* codes, uint64_t run, uint32_t* word) {
  if constexpr (kWidth == 8) {
    word[0] = reinterpret_cast<const uint32_t*>(codes)[run];
  } else if constexpr (kWidth == 16) {
    const uint2 two = reinterpret_cast<const uint2*>(codes)[run];
    word[0] = two.x, word[1] = two.y;
  } else {
    const uint4 four = reinterpret_cast<const uint4*>(codes)[run];
    word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
  }
}

// Four values, as fp32 or, if it holds them, bf16.
__device__ inline void store_run(uint8_t* out, uint64_t run, bool halves, const float* x) {
  if (halves) {
    reinterpret_cast<uint2*>(out)[run] = make_uint2(__byte_perm(float_bits(x[0]), float_bits(x[1]), 0x7632),
                                                    __byte_perm(float_bits(x[2]), float_bits(x[3]), 0x7632));
  } else {
    reinterpret_cast<uint4*>(out)[run] =
        make_uint4(float_bits(x[0]), float_bits(x[1]), float_bits(x[2]), float_bits(x[3]));
  }
}

// The fast path (fused_groups.h): codes of 8, 16 or 32 bits without padding, to bf16 or fp32; with
// a rounder, fp32 values that are first rounded to an operand format. A warp takes 512 elements at
// a time, a lane four runs of four that are 128 elements apart, so every access of a warp is
// contiguous. Two runs make a group of eight.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    decode_short(const __grid_constant__ Leaf leaf, const __grid_constant__ Rounder rounder, uint64_t first,
                 uint64_t runs, bool halves, uint8_t* out) {
  constexpr uint32_t kRuns = 4, kWords = kWidth / 8;  // words of a run
  const uint32_t lane = threadIdx.x % 32;
  RangeCount seen;
  for (uint64_t at = (blockIdx.x * uint64_t{blockDim.x} + threadIdx.x - lane) * kRuns + lane; at < runs;
       at += uint64_t{gridDim.x} * blockDim.x * kRuns) {
    Raw<kWidth> raw[kRuns / 2] = {};
#pragma unroll
    for (uint32_t u = 0; u < kRuns; ++u) {
      if (at + 32 * u < runs)
        load_run<kWidth>(leaf.view.stored.codes, first + at + 32 * u, raw[u / 2].word + u % 2 * kWords);
    }
#pragma unroll
    for (uint32_t u = 0; u < kRuns; u += 2) {
      float x[8];
      if constexpr (kWidth == 32) {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = bits_float(raw[u / 2].word[i]);
        if (rounder.on) round_quick<false>(rounder, x, seen);
      } else {
        decode_group<kWidth>(leaf, raw[u / 2], x);
      }
      if (at + 32 * u < runs) store_run(out, at + 32 * u, halves, x);
      if (at + 32 * (u + 1) < runs) store_run(out, at + 32 * (u + 1), halves, x + 4);
    }
  }
  if (rounder.on) report(seen, leaf.view.stats);
}

// The inverse, rounded to nearest even.
__global__ void __launch_bounds__(kThreads)
    encode_short(const __grid_constant__ WriteView view, const __grid_constant__ Rounder rounder,
                 uint64_t first, uint64_t groups, const float* in) {
  RangeCount seen;
  float4 raw[kAtOnce][2] = {};
  for_groups(
      groups,
      [&](uint32_t u, uint64_t at) {
        raw[u][0] = reinterpret_cast<const float4*>(in)[2 * at];
        raw[u][1] = reinterpret_cast<const float4*>(in)[2 * at + 1];
      },
      [&](uint32_t u, uint64_t at) {
        float x[8] = {raw[u][0].x, raw[u][0].y, raw[u][0].z, raw[u][0].w,
                      raw[u][1].x, raw[u][1].y, raw[u][1].z, raw[u][1].w};
        store_quick<false>(view, rounder, first + at, x, seen);
      });
  report(seen, view.stats);
}

// One thread per element of the array.
__global__ void decode_padded(ReadView view, const StepState* state, Rows rows, DecodedType target,
                              QuickCodec codec, uint8_t* out) {
  RangeCount seen;
  const uint64_t total = rows.count * rows.padded;
  for (uint64_t at = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; at < total;
       at += uint64_t{gridDim.x} * blockDim.x) {
    const uint64_t row = at / rows.padded, channel = at % rows.padded;
    float x = 0;
    if (channel < rows.channels)
      x = load_one(view, *state, (rows.first + row) * rows.channels + channel, seen);
    store_target(target, out, at, target_code(target, codec, x));
  }
  if (view.rounds) report(seen, view.stats);
}

__global__ void encode_groups(WriteView view, const StepState* state, Rows rows, const float* in) {
  RangeCount seen;
  const uint64_t first = rows.first * rows.channels / kGroup, groups = groups_of(rows.elements());
  const bool packed = rows.padded == rows.channels;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups;
       g += uint64_t{gridDim.x} * blockDim.x) {
    float x[8];
    const uint64_t left = rows.elements() - g * kGroup;
    const uint32_t count = left < kGroup ? static_cast<uint32_t>(left) : kGroup;
    if (packed) {
      uint32_t code[8];
      load_codes(reinterpret_cast<const uint8_t*>(in), 32, g, count, code);
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = bits_float(code[i]);
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint64_t at = g * kGroup + i;
        x[i] = i < count ? in[at / rows.channels * rows.padded + at % rows.channels] : 0;
      }
    }
    store(view, *state, first + g, x, seen);
  }
  if (!view.stored.fp32) report(seen, view.stats);
}

// The same for small tensors: one element per thread (single.h).
__global__ void __launch_bounds__(kThreads)
    decode_singles(const __grid_constant__ ReadView view, Rows rows, DecodedType target,
                   const __grid_constant__ QuickCodec codec, uint8_t* out) {
  RangeCount seen;
  const uint64_t at = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
  if (at < rows.count * rows.padded) {
    const uint64_t row = at / rows.padded, channel = at % rows.padded;
    float x = 0;
    if (channel < rows.channels) {
      x = load_single(view.stored, (rows.first + row) * rows.channels + channel);
      if (view.rounds) {
        const Encoded made = encode_even(view.operand, float_bits(x));
        seen.add(made, float_bits(x));
        x = bits_float(decode_quick(view.operand, made.code));
      }
    }
    store_target(target, out, at, target_code(target, codec, x));
  }
  if (view.rounds) report(seen, view.stats);
}

__global__ void __launch_bounds__(kThreads)
    encode_singles(const __grid_constant__ WriteView view, const StepState* state, Rows rows,
                   const float* in) {
  RangeCount seen;
  const uint64_t at = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
  if (at < rows.elements()) {
    const uint64_t row = at / rows.channels, channel = at % rows.channels;
    store_single(view, *state, rows.first * rows.channels + at, in[row * rows.padded + channel], seen);
  }
  if (!view.stored.fp32) report(seen, view.stats);
}

// One warp per block of 256: finds the largest finite magnitude first. Writes codes, or with `back`
// the values they stand for.
__global__ void encode_scaled(WriteView view, const StepState* state, const float* in, float* back) {
  RangeCount seen;
  const uint64_t blocks = scaled_blocks(view.stored.elements);
  const uint32_t warps = blockDim.x / 32, lane = threadIdx.x % 32;
  // All warps of a block loop equally often, because report() needs them all.
  for (uint64_t b = blockIdx.x * uint64_t{warps} + threadIdx.x / 32; b < blocks;
       b += uint64_t{gridDim.x} * warps) {
    const uint64_t group = b * (kScaledBlock / kGroup) + lane;
    const uint32_t count = group < groups_of(view.stored.elements) ? count_in(view.stored, group) : 0;
    uint32_t x[8] = {};
    uint32_t most = 0;
    if (count > 0) load_codes(reinterpret_cast<const uint8_t*>(in), 32, group, count, x);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t magnitude = x[i] & 0x7FFFFFFFu;
      if (i < count && magnitude < 0x7F800000u && magnitude > most) most = magnitude;
    }
    const int k = scale_exponent(view.stored.codec.spec, view.mode, warp_max(most));
    const uint32_t scale = static_cast<uint32_t>(127 + k) << 23;
    if (lane == 0 && back == nullptr) view.stored.side[b] = scale;
    if (count == 0) continue;
    const CodecSpec spec = scaled_spec(view.stored.codec.spec, k);
    uint32_t words[8] = {};
    if (view.mode == Round::stochastic) group_words(key_of(*state, view.number, view.state), group, words);
    uint32_t code[8];
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      Encoded made = encode_scalar(spec, view.mode, x[i], words[i]);
      if (view.stored.nonzero && made.event == RangeEvent::underflow)
        made = {made.code | 1u, RangeEvent::none};
      if (i < count) seen.add(made, x[i]);
      code[i] = made.code;
    }
    if (back == nullptr) {
      store_codes(view.stored.codes, 8, group, count, code);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
      x[i] = float_bits(scaled_by(bits_float(decode_quick(view.stored.codec, code[i])), scale));
    store_codes(reinterpret_cast<uint8_t*>(back), 32, group, count, x);
  }
  report(seen, view.stats);
}

// Up to here one thread per element is faster than groups of any storage.
constexpr uint64_t kLittle = 1u << 16;

// Threads for work with kAtOnce groups per thread.
Grid short_grid(uint64_t groups) { return {blocks_for((groups + kAtOnce - 1) / kAtOnce), kThreads}; }

// False if the fast path does not apply.
bool decode_quickly(const ReadView& view, const StepState* state, uint64_t first, uint64_t elements,
                    DecodedType target, uint8_t* out, Stream stream) {
  ReadView plain = view;
  plain.rounds = false;
  const Leaf leaf = make_leaf(plain);
  if (!leaf.quick || target == DecodedType::fp16 || target == DecodedType::e4m3 || elements % kGroup != 0)
    return false;
  const Rounder rounder = make_rounder(!view.rounds, view.operand, view.mode, view.number);
  if (rounder.on && !view.stored.fp32) return false;
  const bool halves = target == DecodedType::bf16;
  const uint64_t runs = elements / kRandomRun;
  if (rounder.on && view.mode == Round::stochastic) {
    const RandomForm form = halves ? RandomForm::bf16 : RandomForm::fp32;
    if (!rounds_runs(view.operand, form)) return false;
    const auto* in = reinterpret_cast<const float*>(view.stored.codes) + first * kGroup;
    round_runs(
        {state, in, out, first * kGroup / kRandomRun, runs, view.operand, view.number, true, view.stats},
        form, stream);
    return true;
  }
  if (!rounder.quick) return false;
  const auto go = [&](auto kernel) {
    launch(kernel, short_grid(elements / kGroup / 2), stream, leaf, rounder, first * kGroup / kRandomRun,
           runs, halves, out);
    return true;
  };
  if (view.stored.bits == 8) return go(decode_short<8>);
  return view.stored.bits == 16 ? go(decode_short<16>) : go(decode_short<32>);
}

bool encode_quickly(const WriteView& view, const StepState* state, const Rows& rows, const float* in,
                    Stream stream) {
  const bool widths = view.stored.fp32 || view.stored.bits == 8 || view.stored.bits == 16;
  if (view.stored.kind != Stored::plain || view.sums || !widths || rows.padded != rows.channels ||
      rows.elements() % kGroup != 0)
    return false;
  const Rounder rounder = make_rounder(view.stored.fp32, view.stored.codec, view.mode, view.number);
  const uint64_t first = rows.first * rows.channels, elements = rows.elements();
  if (rounder.on && view.mode == Round::stochastic) {
    const RandomForm form = view.stored.bits == 8 ? RandomForm::codes8 : RandomForm::codes16;
    if (!rounds_runs(view.stored.codec, form)) return false;
    round_runs({state, in, view.stored.codes + first * view.stored.bits / 8, first / kRandomRun,
                elements / kRandomRun, view.stored.codec, view.number, view.state, view.stats},
               form, stream);
    return true;
  }
  if (rounder.on && !rounder.quick) return false;
  launch(encode_short, short_grid(elements / kGroup), stream, view, rounder, first / kGroup,
         elements / kGroup, in);
  return true;
}

}  // namespace

void decode(const ReadView& view, const StepState* state, const Rows& rows, DecodedType target, void* out,
            void* space, Stream stream) {
  if (view.rounds_s2fp8 && view.stored.fp32) {
    const auto* values = reinterpret_cast<const float*>(view.stored.codes);
    round_to_s2fp8(view, values, rows.elements(), out, space, stream);
    return;
  }
  if (view.stored.kind == Stored::s2fp8 && decode_s2fp8(view, rows, target, out, stream)) return;
  auto* bytes = static_cast<uint8_t*>(out);
  const uint64_t first = rows.first * rows.channels, total = rows.count * rows.padded;
  const bool little = total > 0 && total <= kLittle && by_singles(view.stored) &&
                      (!view.rounds || view.mode == Round::nearest_even);
  const auto decode_little = [&] {
    launch(decode_singles, {blocks_for(total), kThreads}, stream, view, rows, target, target_codec(target),
           bytes);
  };
  if (rows.padded == rows.channels && first % kGroup == 0) {
    StoredView stored = view.stored;
    stored.elements = first + rows.elements();  // no group reads beyond the last row
    ReadView cut = view;
    cut.stored = stored;
    const uint64_t groups = groups_of(rows.elements());
    if (decode_quickly(cut, state, first / kGroup, rows.elements(), target, bytes, stream)) {
      // Done.
    } else if (little) {
      decode_little();
    } else {
      launch(decode_groups, {blocks_for(groups), kThreads}, stream, cut, state, first / kGroup, groups,
             target, target_codec(target), bytes);
    }
  } else if (little) {
    decode_little();
  } else {
    launch(decode_padded, {blocks_for(total), kThreads}, stream, view, state, rows, target,
           target_codec(target), bytes);
  }
  if (view.rounds_scaled) {
    WriteView rounded;
    rounded.stored.elements = rows.elements();
    rounded.stored.nonzero = view.operand_nonzero;
    rounded.stored.codec = view.operand;
    rounded.mode = view.mode;
    rounded.state = true;
    rounded.number = view.number;
    rounded.stats = view.stats;
    launch(encode_scaled, {blocks_for(scaled_blocks(rows.elements()) * 32), kThreads}, stream, rounded, state,
           static_cast<const float*>(out), static_cast<float*>(out));
  }
  if (view.rounds_s2fp8)
    round_to_s2fp8(view, static_cast<const float*>(out), rows.elements(), out, space, stream);
}

void encode(const WriteView& view, const StepState* state, const Rows& rows, const float* in, void* space,
            Stream stream) {
  if (view.stored.kind == Stored::scaled) {
    const uint64_t blocks = scaled_blocks(view.stored.elements);
    launch(encode_scaled, {blocks_for(blocks * 32), kThreads}, stream, view, state, in,
           static_cast<float*>(nullptr));
  } else if (view.stored.kind == Stored::s2fp8) {
    encode_s2fp8(view, state, in, rows.elements(), space, stream);
  } else {
    WriteView cut = view;
    const uint64_t end = rows.first * rows.channels + rows.elements();
    if (end < cut.stored.elements) cut.stored.elements = end;
    if (encode_quickly(cut, state, rows, in, stream)) return;
    if (rows.elements() > 0 && rows.elements() <= kLittle && by_singles(view)) {
      launch(encode_singles, {blocks_for(rows.elements()), kThreads}, stream, cut, state, rows, in);
      return;
    }
    launch(encode_groups, {blocks_for(groups_of(rows.elements())), kThreads}, stream, cut, state, rows, in);
  }
}

}  // namespace ulp::cuda
