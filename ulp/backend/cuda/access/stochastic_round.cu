// A warp takes 512 elements at a time, a lane four runs that are 128 elements apart. So every
// access of a warp is contiguous, and the four draws of random words share their common part. Runs
// that the fast path cannot round (NaN, very large values, random words equal to the fraction in
// all bits kept) are skipped and rounded by the slow path afterwards.
#include "ulp/backend/cuda/access/stochastic_round.h"

#include "ulp/backend/cuda/elementwise/fused_groups.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kRuns = 4;            // of a lane at a time
constexpr uint32_t kPiece = 32 * kRuns;  // runs of a warp

constexpr bool writes_codes(RandomForm form) {
  return form == RandomForm::codes8 || form == RandomForm::codes16;
}

// The random words of a lane's runs. Computed round by round, so that the key schedule is computed
// once.
__device__ inline void draw(const RoundKey& key, uint64_t base, uint32_t lane, PhiloxWords (&words)[kRuns]) {
  PhiloxKey philox_key = round_philox_key(key);
#pragma unroll
  for (uint32_t u = 0; u < kRuns; ++u) {
    words[u] = round_counter(key, base);
    words[u].word[0] += 32 * u + lane;
  }
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma unroll
    for (uint32_t u = 0; u < kRuns; ++u) words[u] = philox_round(words[u], philox_key);
    philox_key = philox_next_key(philox_key);
  }
}

// Rounding constants, computed once per thread. Let y be the pattern of max(2|x|, |x| + least)
// (axis_place of quick.h) and r the random word. Then the high word of z = (base << 32) + r - y *
// scale is minus the code: place minus addend is the sum in random_addend, here with all bits of r
// and the signs inverted, so that r needs no instruction of its own. The low word is below `scale`
// if the bits of r at the place's length equal the place's: random_unsure.
struct Turned {
  float least, largest;
  int32_t scale;  // -2^(32 - shift)
  uint32_t base;  // the part of `least`'s pattern above `shift` bits

  __device__ explicit Turned(const QuickCodec& codec)
      : least(bits_float(codec.lowest)),
        largest(
            fminf(bits_float(decode_scalar(codec.spec, codec.spec.max_code)), bits_float(kQuickLimit - 1))),
        scale(-(1 << (32 - codec.shift))),
        base(codec.lowest >> codec.shift) {}

  __device__ uint64_t place(float x, uint32_t word) const {
    const float magnitude = fabsf(x);
    const uint32_t twice = float_bits(magnitude + magnitude), sum = float_bits(add_cut(magnitude, least));
    const auto y = static_cast<int32_t>(twice > sum ? twice : sum);
    return static_cast<uint64_t>(int64_t{y} * scale) + (uint64_t{base} << 32 | word);
  }
  // Whether one of several values may be undecided (random_unsure); `low` is the smallest low word.
  __device__ bool unsure(uint32_t low) const { return low < static_cast<uint32_t>(-scale); }
};

// Packs codes, given as their negatives, using the least busy execution units.
template <RandomForm kForm>
__device__ inline uint2 pack(const uint32_t (&minus)[kRandomRun]) {
  if constexpr (kForm == RandomForm::codes8) {
    const uint32_t low = minus[1] * (0u - 256u) - minus[0], high = minus[3] * (0u - 256u) - minus[2];
    return make_uint2(high * 65536u + low, 0);
  } else {
    return make_uint2(minus[1] * (0u - 65536u) - minus[0], minus[3] * (0u - 65536u) - minus[2]);
  }
}
// Whether one of the codes is 0, provided that none is too large.
template <RandomForm kForm>
__device__ inline bool has_zero(const uint2& packed) {
  if constexpr (kForm == RandomForm::codes8) {
    return ((packed.x - 0x01010101u) & 0x80808080u) != 0;
  } else {
    return (((packed.x - 0x00010001u) | (packed.y - 0x00010001u)) & 0x80008000u) != 0;
  }
}

// Writes a run, from the negatives of its codes or from these packed; signs are those of the
// values.
template <RandomForm kForm>
__device__ inline void store_run(const QuickCodec& codec, uint8_t* out, const uint4& x,
                                 const uint32_t (&minus)[kRandomRun], const uint2& packed) {
  if constexpr (kForm == RandomForm::codes8) {
    const uint32_t signs = __byte_perm(__byte_perm(x.x, x.y, 0x0073), __byte_perm(x.z, x.w, 0x0073), 0x5410);
    *reinterpret_cast<uint32_t*>(out) = packed.x | (signs & 0x80808080u);
  } else if constexpr (kForm == RandomForm::codes16) {
    *reinterpret_cast<uint2*>(out) = make_uint2(packed.x | (__byte_perm(x.x, x.y, 0x7632) & 0x80008000u),
                                                packed.y | (__byte_perm(x.z, x.w, 0x7632) & 0x80008000u));
  } else {
    const uint32_t pattern[kRandomRun] = {x.x, x.y, x.z, x.w};
    uint32_t made[kRandomRun];
#pragma unroll
    for (uint32_t i = 0; i < kRandomRun; ++i) {
      made[i] = float_bits(bits_float(minus[i] * (0u - (1u << codec.shift))) * codec.lift) |
                (pattern[i] & 0x80000000u);
    }
    if constexpr (kForm == RandomForm::fp32) {
      *reinterpret_cast<uint4*>(out) = make_uint4(made[0], made[1], made[2], made[3]);
    } else {
      *reinterpret_cast<uint2*>(out) =
          make_uint2(__byte_perm(made[0], made[1], 0x7632), __byte_perm(made[2], made[3], 0x7632));
    }
  }
}

// The slow path for a run.
template <RandomForm kForm>
__device__ inline void round_special(const RandomCall& call, const RoundKey& key, uint64_t run, int64_t at,
                                     RangeCount& seen) {
  const PhiloxWords words = philox(round_counter(key, run), round_philox_key(key));
#pragma unroll 1
  for (int i = 0; i < static_cast<int>(kRandomRun); ++i) {
    const int64_t element = at * kRandomRun + i;
    const uint32_t x = float_bits(call.in[element]);
    const Encoded made = encode_quick(call.codec, Round::stochastic, x, pick(words.word, i));
    seen.add(made, x);
    if constexpr (kForm == RandomForm::codes8) {
      call.out[element] = static_cast<uint8_t>(made.code);
    } else if constexpr (kForm == RandomForm::codes16) {
      reinterpret_cast<uint16_t*>(call.out)[element] = static_cast<uint16_t>(made.code);
    } else {
      const uint32_t number = decode_quick(call.codec, made.code);
      if constexpr (kForm == RandomForm::fp32) {
        reinterpret_cast<uint32_t*>(call.out)[element] = number;
      } else {
        reinterpret_cast<uint16_t*>(call.out)[element] = static_cast<uint16_t>(number >> 16);
      }
    }
  }
}

// The piece of a warp, as each of its lanes knows it.
struct Piece {
  const uint4* in;  // of this lane's first run, as is `out`
  uint8_t* out;
  uint64_t base;         // its first run
  uint32_t skip, count;  // missing runs before the first existing one, and existing runs
};

// Bytes written for a run.
template <RandomForm kForm>
inline constexpr uint32_t kRunBytes = kForm == RandomForm::codes8 ? 4
                                      : kForm == RandomForm::fp32 ? 16
                                                                  : 8;

// Rounds a piece. `kWhole`: all its runs exist; otherwise missing ones are zeros.
template <RandomForm kForm, bool kWhole>
__device__ inline void round_piece(const RandomCall& call, const RoundKey& key, const Turned& turned,
                                   const Piece& piece, uint32_t lane, RangeCount& seen) {
  const CodecSpec& spec = call.codec.spec;
  const auto there = [&](uint32_t u) { return kWhole || 32 * u + lane - piece.skip < piece.count; };
  uint4 raw[kRuns];
#pragma unroll
  for (uint32_t u = 0; u < kRuns; ++u) {
    raw[u] = make_uint4(0, 0, 0, 0);
    if (there(u)) raw[u] = piece.in[32 * u];
  }
  PhiloxWords words[kRuns];
  draw(key, piece.base, lane, words);
  uint32_t special = 0;  // a bit for each run that is skipped
#pragma unroll
  for (uint32_t u = 0; u < kRuns; ++u) {
    const float x[kRandomRun] = {bits_float(raw[u].x), bits_float(raw[u].y), bits_float(raw[u].z),
                                 bits_float(raw[u].w)};
    float most = larger(larger(x[0], x[1]), larger(x[2], x[3]));
    uint32_t minus[kRandomRun], low = ~0u;
    bool odd = !(most <= turned.largest);
#pragma unroll
    for (uint32_t i = 0; i < kRandomRun; ++i) {
      const uint64_t z = turned.place(x[i], words[u].word[i]);
      minus[i] = static_cast<uint32_t>(z >> 32);
      low = static_cast<uint32_t>(z) < low ? static_cast<uint32_t>(z) : low;
      if constexpr (!writes_codes(kForm)) odd = odd || minus[i] == 0;
    }
    const bool unsure = turned.unsure(low);
    uint2 packed = make_uint2(0, 0);
    if constexpr (writes_codes(kForm)) {
      packed = pack<kForm>(minus);
      odd = odd || has_zero<kForm>(packed);
    }
    bool left_out = false;
    if (odd || unsure) {
      const bool endless = !writes_codes(kForm) && spec.over_code > spec.max_code && most > turned.largest;
      left_out = unsure || endless || !(most < kShortLimit);
      if (left_out) {
        special |= there(u) ? 1u << u : 0;
        most = 0;  // the slow path counts
      } else {
#pragma unroll
        for (uint32_t i = 0; i < kRandomRun; ++i) {
          seen.underflow += minus[i] == 0 && x[i] != 0 ? 1 : 0;
          if (0u - minus[i] > spec.max_code) {
            ++seen.overflow;
            minus[i] = 0u - spec.over_code;
          }
        }
        if constexpr (writes_codes(kForm)) packed = pack<kForm>(minus);
      }
    }
    seen.add_most(most);
    // codes8 bytes of a skipped run may be written here, because the slow path writes them again.
    // Other forms may not: values may overlay the input, and 16-bit codes are then written one by
    // one, which a compiler may treat differently.
    if (there(u) && (kForm == RandomForm::codes8 || !left_out))
      store_run<kForm>(call.codec, piece.out + 32 * u * kRunBytes<kForm>, raw[u], minus, packed);
  }
#pragma unroll 1
  for (uint32_t u = 0; special != 0; ++u, special >>= 1) {
    if ((special & 1u) != 0) {
      const int64_t at = static_cast<int64_t>(piece.base - call.first) + lane + 32 * u;
      round_special<kForm>(call, key, piece.base + 32 * u + lane, at, seen);
    }
  }
}

template <RandomForm kForm>
__global__ void __launch_bounds__(kThreads, 3) random_runs(const __grid_constant__ RandomCall call) {
  const RoundKey key = key_of(*call.state, call.number, call.of_state);
  const Turned turned(call.codec);
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t end = call.first + call.runs, step = uint64_t{gridDim.x} * (blockDim.x / 32) * kPiece;
  RangeCount seen;
  // Pieces begin at multiples of their length, so that the Philox blocks of a piece share the high
  // word of their numbers.
  Piece piece;
  piece.base = (call.first / kPiece + blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * kPiece;
  const int64_t at = static_cast<int64_t>(piece.base - call.first) + lane;
  piece.in = reinterpret_cast<const uint4*>(call.in) + at;
  piece.out = call.out + at * kRunBytes<kForm>;
  for (; piece.base < end; piece.base += step, piece.in += step, piece.out += step * kRunBytes<kForm>) {
    if (piece.base >= call.first && end - piece.base >= kPiece) {
      round_piece<kForm, true>(call, key, turned, piece, lane, seen);
    } else {
      piece.skip = piece.base < call.first ? static_cast<uint32_t>(call.first - piece.base) : 0;
      piece.count =
          (end - piece.base < kPiece ? static_cast<uint32_t>(end - piece.base) : kPiece) - piece.skip;
      round_piece<kForm, false>(call, key, turned, piece, lane, seen);
    }
  }
  report(seen, call.stats);
}

}  // namespace

bool rounds_runs(const QuickCodec& codec, RandomForm form) {
  return codec.short_in && (writes_codes(form) || codec.short_out);
}

void round_runs(const RandomCall& call, RandomForm form, Stream stream) {
  const auto kernel = form == RandomForm::codes8    ? random_runs<RandomForm::codes8>
                      : form == RandomForm::codes16 ? random_runs<RandomForm::codes16>
                      : form == RandomForm::fp32    ? random_runs<RandomForm::fp32>
                                                    : random_runs<RandomForm::bf16>;
  launch(kernel, {blocks_for((call.runs + kRuns - 1) / kRuns + 32, kThreads, call.most_blocks), kThreads},
         stream, call);
}

}  // namespace ulp::cuda
