// Reading and writing groups of eight elements of a tensor in a kernel, for any storage, with the
// bits and range events of the CPU's codecs. Only for files compiled as kernels.
#pragma once

#include "ulp/backend/cuda/access/range_count.h"
#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/runtime/launch.h"
#include "ulp/numeric/s2fp8.h"
#include "ulp/numeric/scaled.h"
#include "ulp/numeric/split.h"

namespace ulp::cuda {

// The random words of a group: two draws of four.
__device__ inline void group_words(const RoundKey& key, uint64_t group, uint32_t (&words)[8]) {
  const PhiloxKey philox_key = round_philox_key(key);
  const PhiloxWords low = philox(round_counter(key, 2 * group), philox_key);
  const PhiloxWords high = philox(round_counter(key, 2 * group + 1), philox_key);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = low.word[i];
    words[4 + i] = high.word[i];
  }
}

__device__ inline RoundKey key_of(const StepState& state, uint32_t number, bool of_state) {
  return {state.seed, state.step, number, of_state ? uint16_t{0} : state.micro_batch};
}

// The codes of a group, of `bits` bits each, from whole bytes.
__device__ inline void load_codes(const uint8_t* codes, uint32_t bits, uint64_t group, uint32_t count,
                                  uint32_t (&code)[8]) {
  const uint8_t* at = codes + group * bits;
  if (count == kGroup && bits == 8) {
    const uint2 raw = *reinterpret_cast<const uint2*>(at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      code[i] = (raw.x >> (8 * i)) & 0xFFu;
      code[4 + i] = (raw.y >> (8 * i)) & 0xFFu;
    }
  } else if (count == kGroup && bits == 16) {
    const uint4 raw = *reinterpret_cast<const uint4*>(at);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      code[2 * i] = words[i] & 0xFFFFu;
      code[2 * i + 1] = words[i] >> 16;
    }
  } else if (count == kGroup && bits == 32) {
    const uint4 low = *reinterpret_cast<const uint4*>(at), high = *reinterpret_cast<const uint4*>(at + 16);
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = words[i];
  } else {
    // Any width, and the tensor's end: no byte beyond the last code is touched.
    uint64_t window = 0;
    uint32_t have = 0, next = 0;
    const uint32_t mask = bits == 32 ? 0xFFFFFFFFu : (1u << bits) - 1;
    const uint32_t bytes = (count * bits + 7) / 8;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      while (have < bits && next < bytes) {
        window |= uint64_t{at[next++]} << have;
        have += 8;
      }
      code[i] = i < count ? static_cast<uint32_t>(window) & mask : 0;
      window >>= bits;
      have = have > bits ? have - bits : 0;
    }
  }
}

__device__ inline void store_codes(uint8_t* codes, uint32_t bits, uint64_t group, uint32_t count,
                                   const uint32_t (&code)[8]) {
  uint8_t* at = codes + group * bits;
  if (count == kGroup && bits == 8) {
    uint2 raw = make_uint2(0, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw.x |= code[i] << (8 * i);
      raw.y |= code[4 + i] << (8 * i);
    }
    *reinterpret_cast<uint2*>(at) = raw;
  } else if (count == kGroup && bits == 16) {
    *reinterpret_cast<uint4*>(at) = make_uint4(code[0] | code[1] << 16, code[2] | code[3] << 16,
                                               code[4] | code[5] << 16, code[6] | code[7] << 16);
  } else if (count == kGroup && bits == 32) {
    *reinterpret_cast<uint4*>(at) = make_uint4(code[0], code[1], code[2], code[3]);
    *reinterpret_cast<uint4*>(at + 16) = make_uint4(code[4], code[5], code[6], code[7]);
  } else {
    uint64_t window = 0;
    uint32_t have = 0, next = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      if (i >= count) continue;
      window |= uint64_t{code[i]} << have;
      have += bits;
      while (have >= 8) {
        at[next++] = static_cast<uint8_t>(window);
        window >>= 8;
        have -= 8;
      }
    }
    if (have > 0) at[next] = static_cast<uint8_t>(window);
  }
}

__device__ inline uint32_t count_in(const StoredView& view, uint64_t group) {
  const uint64_t left = view.elements - group * kGroup;
  return left < kGroup ? static_cast<uint32_t>(left) : kGroup;
}

// An element of a scaled block times its scale, a power of two with pattern `scale`. NaN keeps its
// bits; the GPU's multiplication would replace them.
__device__ inline float scaled_by(float x, uint32_t scale) {
  const float product = x * bits_float(scale);
  return (float_bits(x) & 0x7FFFFFFFu) > 0x7F800000u ? x : product;
}

// The values of the 256 codes of an S2FP8 tensor. All threads of the block must call it, and
// synchronise before they read.
__device__ inline void make_s2fp8_values(const StoredView& view, float* values) {
  const S2fp8Map map = s2fp8_map({bits_float(view.side[0]), bits_float(view.side[1])});
  for (uint32_t code = threadIdx.x; code < 256; code += blockDim.x)
    values[code] = bits_float(s2fp8_restore(map, decode_quick(view.codec, code)));
}

// Decodes what is stored. Elements beyond the tensor's end are 0.
__device__ inline void load_stored(const StoredView& view, uint64_t group, float (&x)[8]) {
  uint32_t code[8];
  const uint32_t count = count_in(view, group);
  load_codes(view.codes, view.bits, group, count, code);
  if (view.fp32) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = bits_float(code[i]);
    return;
  }
  if (view.kind == Stored::split) {
    uint32_t low[8];
    load_codes(reinterpret_cast<const uint8_t*>(view.side), view.side_bits, group, count, low);
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = join_code(view.extra, {code[i], low[i]});
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = bits_float(decode_quick(view.codec, code[i]));
  if (view.kind == Stored::scaled) {
    // The scale is a power of two in a range where every code is a number, so the product is exact.
    const uint32_t scale = view.side[group * kGroup / kScaledBlock];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = scaled_by(x[i], scale);
  } else if (view.kind == Stored::s2fp8) {
    const S2fp8Map map = s2fp8_map({bits_float(view.side[0]), bits_float(view.side[1])});
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = bits_float(s2fp8_restore(map, float_bits(x[i])));
  }
}

// Reads values as operators see them. The caller reports `seen` if the view has statistics.
__device__ inline void load(const ReadView& view, const StepState& state, uint64_t group, float (&x)[8],
                            RangeCount& seen) {
  load_stored(view.stored, group, x);
  if (!view.rounds) return;
  uint32_t words[8] = {};
  if (view.mode == Round::stochastic) group_words(key_of(state, view.number, true), group, words);
  const uint32_t count = count_in(view.stored, group);
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const Encoded made = encode_quick(view.operand, view.mode, float_bits(x[i]), words[i]);
    if (i < count) seen.add(made, float_bits(x[i]));
    x[i] = bits_float(decode_quick(view.operand, made.code));
  }
}

// One element. For gathers; reading whole groups is faster.
__device__ inline float load_one(const StoredView& view, uint64_t i) {
  if (view.fp32) return reinterpret_cast<const float*>(view.codes)[i];
  uint32_t code;
  if (view.bits == 8) {
    code = view.codes[i];
  } else if (view.bits == 16) {
    code = reinterpret_cast<const uint16_t*>(view.codes)[i];
  } else {
    uint32_t all[8];
    load_codes(view.codes, view.bits, i / kGroup, count_in(view, i / kGroup), all);
    code = all[0];
#pragma unroll
    for (uint32_t k = 1; k < 8; ++k) code = k == i % kGroup ? all[k] : code;
  }
  if (view.kind == Stored::split) {
    uint32_t all[8];
    load_codes(reinterpret_cast<const uint8_t*>(view.side), view.side_bits, i / kGroup,
               count_in(view, i / kGroup), all);
    uint32_t low = all[0];
#pragma unroll
    for (uint32_t k = 1; k < 8; ++k) low = k == i % kGroup ? all[k] : low;
    code = join_code(view.extra, {code, low});
  }
  float x = bits_float(decode_quick(view.codec, code));
  if (view.kind == Stored::scaled) x = scaled_by(x, view.side[i / kScaledBlock]);
  if (view.kind == Stored::s2fp8) {
    x = bits_float(
        s2fp8_restore(s2fp8_map({bits_float(view.side[0]), bits_float(view.side[1])}), float_bits(x)));
  }
  return x;
}

// One element as operators see it.
__device__ inline float load_one(const ReadView& view, const StepState& state, uint64_t i, RangeCount& seen) {
  const float x = load_one(view.stored, i);
  if (!view.rounds) return x;
  const uint32_t word = view.mode == Round::stochastic ? random_word(key_of(state, view.number, true), i) : 0;
  const Encoded made = encode_quick(view.operand, view.mode, float_bits(x), word);
  seen.add(made, float_bits(x));
  return bits_float(decode_quick(view.operand, made.code));
}

// Whether the new value is added to the present one.
__device__ inline bool adding(const WriteView& view, const StepState& state) {
  return view.sums && (view.adds || state.micro_batch > 0);
}

// Writes a group of a tensor with plain or split storage. Scaled storage needs a pass over a block
// of 256 elements first, and S2FP8 over the whole tensor: use encode() of convert.h; updates handle
// scaled state themselves.
__device__ inline void store(const WriteView& view, const StepState& state, uint64_t group,
                             const float (&x)[8], RangeCount& seen) {
  const uint32_t count = count_in(view.stored, group);
  uint32_t code[8];
  if (view.stored.fp32) {
    if (adding(view, state)) {
      uint32_t before[8];
      load_codes(view.stored.codes, 32, group, count, before);
#pragma unroll
      for (int i = 0; i < 8; ++i) code[i] = float_bits(bits_float(before[i]) + x[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) code[i] = float_bits(x[i]);
    }
    store_codes(view.stored.codes, 32, group, count, code);
    return;
  }
  uint32_t words[8] = {};
  const bool random = view.mode == Round::stochastic || view.stored.random_high;
  if (random) group_words(key_of(state, view.number, view.state), group, words);
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const Encoded made = encode_quick(view.stored.codec, view.mode, float_bits(x[i]), words[i]);
    if (i < count) seen.add(made, float_bits(x[i]));
    code[i] = made.code;
  }
  if (view.stored.kind == Stored::split) {
    uint32_t low[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const SplitCode parts =
          split_code(view.stored.codec.spec, view.stored.extra, view.stored.random_high, code[i], words[i]);
      code[i] = parts.high;
      low[i] = parts.side;
    }
    store_codes(reinterpret_cast<uint8_t*>(view.stored.side), view.stored.side_bits, group, count, low);
  }
  store_codes(view.stored.codes, view.stored.bits, group, count, code);
}

}  // namespace ulp::cuda
