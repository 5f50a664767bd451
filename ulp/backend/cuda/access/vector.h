// Reading and writing vectors of 1, 2 or 4 neighbouring elements of a tensor, with the bits and
// range events of codec.h, for kernels whose threads own channels. A vector must begin at a
// multiple of its width. Only for files compiled as kernels.
//
// For tensors that reads_by_vectors or writes_by_vectors accepts: codes of one or two bytes, and
// fp32.
#pragma once

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/numeric/math.h"

#if defined(__CUDACC__)
#define ULP_NOINLINE __noinline__
#else
#define ULP_NOINLINE
#endif

namespace ulp::cuda {

// The codes of V elements of B bytes, as stored.
template <int V, int B>
struct Codes {
  static constexpr int kPerWord = 4 / B;
  static constexpr int kWords = V * B < 4 ? 1 : V * B / 4;
  uint32_t word[kWords];

  __device__ uint32_t code(int i) const {
    if constexpr (B == 4) return word[i];
    return word[i / kPerWord] >> (8 * B * (i % kPerWord)) & (B == 1 ? 0xFFu : 0xFFFFu);
  }
};

template <int V, int B>
__device__ inline Codes<V, B> fetch(const uint8_t* codes, uint64_t element) {
  const uint8_t* at = codes + element * B;
  Codes<V, B> raw;
  if constexpr (V * B == 16) {
    const uint4 got = *reinterpret_cast<const uint4*>(at);
    raw.word[0] = got.x;
    raw.word[1] = got.y;
    raw.word[2] = got.z;
    raw.word[3] = got.w;
  } else if constexpr (V * B == 8) {
    const uint2 got = *reinterpret_cast<const uint2*>(at);
    raw.word[0] = got.x;
    raw.word[1] = got.y;
  } else if constexpr (V * B == 4) {
    raw.word[0] = *reinterpret_cast<const uint32_t*>(at);
  } else if constexpr (V * B == 2) {
    raw.word[0] = *reinterpret_cast<const uint16_t*>(at);
  } else {
    raw.word[0] = *at;
  }
  return raw;
}

template <int V, int B>
__device__ inline void put(uint8_t* codes, uint64_t element, const uint32_t (&code)[V]) {
  uint8_t* at = codes + element * B;
  uint32_t word[Codes<V, B>::kWords] = {};
#pragma unroll
  for (int i = 0; i < V; ++i) {
    word[i / Codes<V, B>::kPerWord] |= code[i] << (B == 4 ? 0 : 8 * B * (i % Codes<V, B>::kPerWord));
  }
  if constexpr (V * B == 16) {
    *reinterpret_cast<uint4*>(at) = make_uint4(word[0], word[1], word[2], word[3]);
  } else if constexpr (V * B == 8) {
    *reinterpret_cast<uint2*>(at) = make_uint2(word[0], word[1]);
  } else if constexpr (V * B == 4) {
    *reinterpret_cast<uint32_t*>(at) = word[0];
  } else if constexpr (V * B == 2) {
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>(word[0]);
  } else {
    *at = static_cast<uint8_t>(word[0]);
  }
}

// Decoding constants, computed once per thread. A code is shifted to the top of a word and back
// with sign extension, by the difference between its exponent field and fp32's; sign and fields are
// then in fp32's positions.
struct VectorDecoder {
  uint32_t back, mask;
  uint32_t above;      // makes a code above the largest number carry into its sign bit
  const float* table;  // by 8-bit code, in shared memory: for slow formats, special codes
  bool quick;
};

// All threads of the block must call it, 256 of them, and synchronise before they decode.
__device__ inline VectorDecoder make_vector_decoder(const StoredView& view, float* table) {
  VectorDecoder decoder{};
  const QuickCodec& codec = view.codec;
  const int back = 32 - view.bits - static_cast<int>(codec.shift);
  decoder.quick = view.bits < 32 && view.kind != Stored::s2fp8 && codec.short_out &&
                  codec.spec.sign_shift == view.bits - 1 && back >= 0;
  decoder.back = decoder.quick ? static_cast<uint32_t>(back) : 0;
  // Removes the copies of the sign and the neighbours' bits below.
  decoder.mask = (0x80000000u | 0x7FFFFFFFu >> decoder.back) & ~((uint32_t{1} << codec.shift) - 1);
  decoder.above = view.bits == 8 ? (0x7Fu - codec.spec.max_code) * 0x01010101u
                                 : (0x7FFFu - codec.spec.max_code) * 0x00010001u;
  decoder.table = table;
  if (view.kind == Stored::s2fp8) {
    make_s2fp8_values(view, table);
  } else if (view.bits == 8) {
    table[threadIdx.x] = bits_float(decode_quick(codec, threadIdx.x));
  }
  return decoder;
}

// The values of a vector that begins at `element`.
template <int V, int B>
__device__ inline void decode_vector(const StoredView& view, const VectorDecoder& decoder, uint64_t element,
                                     const Codes<V, B>& raw, float (&x)[V]) {
  if constexpr (B == 4) {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = bits_float(raw.word[i]);
  } else {
    constexpr uint32_t kSigns = B == 1 ? 0x80808080u : 0x80008000u;
    uint32_t special = 0;
#pragma unroll
    for (int i = 0; i < Codes<V, B>::kWords; ++i) special |= (raw.word[i] & ~kSigns) + decoder.above;
    if (B == 1 && (!decoder.quick || (special & kSigns) != 0)) {
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = decoder.table[raw.code(i)];
    } else {
      constexpr int kPerWord = Codes<V, B>::kPerWord;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const uint32_t top = raw.word[i / kPerWord] << (8 * B * (kPerWord - 1 - i % kPerWord));
        const auto pattern = static_cast<uint32_t>(static_cast<int32_t>(top) >> decoder.back) & decoder.mask;
        x[i] = bits_float(pattern) * view.codec.lift;
      }
      if (B == 2 && (special & kSigns) != 0) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if ((raw.code(i) & 0x7FFFu) > view.codec.spec.max_code)
            x[i] = bits_float(decode_scalar(view.codec.spec, raw.code(i)));
        }
      }
    }
    if (view.kind == Stored::scaled) {
      const uint32_t scale = view.side[element / kScaledBlock];
#pragma unroll
      for (int i = 0; i < V; ++i) x[i] = scaled_by(x[i], scale);
    }
  }
}

// A vector of codes of either width, or of fp32.
template <int V>
__device__ inline void load_vector(const StoredView& view, const VectorDecoder& decoder, uint64_t element,
                                   float (&x)[V]) {
  if (view.bits == 8) {
    decode_vector<V, 1>(view, decoder, element, fetch<V, 1>(view.codes, element), x);
  } else if (view.bits == 16) {
    decode_vector<V, 2>(view, decoder, element, fetch<V, 2>(view.codes, element), x);
  } else {
    decode_vector<V, 4>(view, decoder, element, fetch<V, 4>(view.codes, element), x);
  }
}

// The slow path: codes of up to four values and their events. Two codes per word; overflows,
// underflows and NaN in one byte each; and the largest magnitude. Not inlined, so that the fast
// path keeps its registers.
__device__ ULP_NOINLINE inline uint4 encode_long(const WriteView* view, const StepState* state,
                                                 uint64_t element, uint32_t count, uint4 patterns) {
  PhiloxWords words = {};
  if (view->mode == Round::stochastic) {
    const RoundKey key = key_of(*state, view->number, view->state);
    words = philox(round_counter(key, element / 4), round_philox_key(key));
  }
  const uint32_t pattern[4] = {patterns.x, patterns.y, patterns.z, patterns.w};
  uint32_t code[4] = {};
  RangeCount seen;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (i >= count) continue;
    const auto place = static_cast<uint32_t>(element + i) % 4;
    const uint32_t word = place < 2 ? (place == 0 ? words.word[0] : words.word[1])
                                    : (place == 2 ? words.word[2] : words.word[3]);
    const Encoded made = encode_quick(view->stored.codec, view->mode, pattern[i], word);
    seen.add(made, pattern[i]);
    code[i] = made.code;
  }
  return make_uint4(code[0] | code[1] << 16, code[2] | code[3] << 16,
                    seen.overflow | seen.underflow << 8 | seen.nan << 16, seen.amax);
}

// Writes sums. NaN is settled to one pattern. `view` must be the kernel's own argument, declared
// __grid_constant__.
template <int V>
__device__ inline void store_vector(const WriteView& view, const StepState* state, uint64_t element,
                                    const float (&x)[V], RangeCount& seen) {
  uint32_t code[V];
  if (view.stored.fp32) {
#pragma unroll
    for (int i = 0; i < V; ++i) code[i] = float_bits(settle_nan(x[i]));
    put<V, 4>(view.stored.codes, element, code);
    return;
  }
  const QuickCodec& codec = view.stored.codec;
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const uint32_t magnitude = float_bits(x[i]) & 0x7FFFFFFFu;
    most = magnitude > most ? magnitude : most;
  }
  if (view.mode == Round::nearest_even && codec.short_in && most < kQuickLimit) {
    // encode_even, with the checks common to all elements done once.
    seen.add_most(most);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const uint32_t magnitude = float_bits(x[i]) & 0x7FFFFFFFu;
      uint32_t made = even_code(codec, magnitude);
      if (made > codec.spec.max_code) {
        made = codec.spec.over_code;
        ++seen.overflow;
      }
      if (made == 0 && magnitude != 0) ++seen.underflow;
      code[i] = made | (float_bits(x[i]) >> 31) << codec.spec.sign_shift;
    }
  } else {
    uint32_t pattern[4] = {};
#pragma unroll
    for (int i = 0; i < V; ++i) pattern[i] = float_bits(settle_nan(x[i]));
    const uint4 made =
        encode_long(&view, state, element, V, make_uint4(pattern[0], pattern[1], pattern[2], pattern[3]));
#pragma unroll
    for (int i = 0; i < V; ++i) code[i] = (i < 2 ? made.x : made.y) >> (16 * (i % 2)) & 0xFFFFu;
    seen.merge({made.z & 0xFFu, made.z >> 8 & 0xFFu, made.z >> 16, made.w});
  }
  if (view.stored.bits == 8) {
    put<V, 1>(view.stored.codes, element, code);
  } else {
    put<V, 2>(view.stored.codes, element, code);
  }
}

}  // namespace ulp::cuda
