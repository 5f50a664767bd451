// Optimizer steps in fp32 arithmetic on the storages that most parameters have, with as few instructions as may be: memory
// is to be what they wait for. fp32, bf16 and bf16 with 16 or 8 extra bits are fp32 patterns cut off after 32, 16 or 24
// bits, so all of them are handled as patterns.
//
// A warp takes 256 elements, a lane two runs of four that lie 128 apart: then every access of a warp is one piece of
// memory, whole sectors even where numbers have four bytes.
#include "ulp/backend/cuda/update.h"

#include "ulp/backend/cuda/update_device.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kRun = 4;         // elements of a run
constexpr uint32_t kMostShare = 16;  // chunks of a warp

// The range events that one thread saw, in few registers: ten bits for each kind.
struct PackedCount {
  uint32_t events = 0, amax = 0;

  __device__ void add(const Encoded& made, uint32_t pattern) {
    RangeCount one;
    one.add(made, pattern);
    events += one.overflow | one.underflow << 10 | one.nan << 20;
    amax = one.amax > amax ? one.amax : amax;
  }
  __device__ RangeCount counts() const { return {events & 1023u, events >> 10 & 1023u, events >> 20, amax}; }
};
static_assert(kMostShare * kUpdateChunk / 32 < 1024);

// Bits of an fp32 pattern that are not stored.
constexpr uint32_t dropped_bits(Quick kind) {
  return kind == Quick::bf16 || kind == Quick::bf16_random ? 16 : kind == Quick::bf16_8 ? 8 : 0;
}

// Patterns of a run. `count` of them are there, the others 0.
template <Quick kKind>
__device__ inline void load_run(const uint8_t* codes, const uint8_t* side, uint64_t at, uint32_t count,
                                uint32_t* x) {
  if (count == kRun) {
    if constexpr (kKind == Quick::fp32) {
      const uint4 raw = *reinterpret_cast<const uint4*>(codes + 4 * at);
      x[0] = raw.x, x[1] = raw.y, x[2] = raw.z, x[3] = raw.w;
    } else {
      const uint2 high = *reinterpret_cast<const uint2*>(codes + 2 * at);
      x[0] = high.x << 16, x[1] = high.x & 0xFFFF0000u;
      x[2] = high.y << 16, x[3] = high.y & 0xFFFF0000u;
      if constexpr (kKind == Quick::bf16_16) {
        const uint2 low = *reinterpret_cast<const uint2*>(side + 2 * at);
        x[0] |= low.x & 0xFFFFu, x[1] |= low.x >> 16;
        x[2] |= low.y & 0xFFFFu, x[3] |= low.y >> 16;
      } else if constexpr (kKind == Quick::bf16_8) {
        const uint32_t low = *reinterpret_cast<const uint32_t*>(side + at);
        x[0] |= (low & 0xFFu) << 8, x[1] |= low & 0xFF00u;
        x[2] |= low >> 8 & 0xFF00u, x[3] |= low >> 16 & 0xFF00u;
      }
    }
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < kRun; ++i) {
    x[i] = 0;
    if (i >= count) continue;
    if constexpr (kKind == Quick::fp32) {
      x[i] = reinterpret_cast<const uint32_t*>(codes)[at + i];
    } else {
      x[i] = uint32_t{reinterpret_cast<const uint16_t*>(codes)[at + i]} << 16;
      if constexpr (kKind == Quick::bf16_16) x[i] |= reinterpret_cast<const uint16_t*>(side)[at + i];
      if constexpr (kKind == Quick::bf16_8) x[i] |= uint32_t{side[at + i]} << 8;
    }
  }
}

// The same back. Dropped bits are ignored.
template <Quick kKind>
__device__ inline void store_run(uint8_t* codes, uint8_t* side, uint64_t at, uint32_t count,
                                 const uint32_t* x) {
  if (count == kRun) {
    if constexpr (kKind == Quick::fp32) {
      *reinterpret_cast<uint4*>(codes + 4 * at) = make_uint4(x[0], x[1], x[2], x[3]);
    } else {
      *reinterpret_cast<uint2*>(codes + 2 * at) =
          make_uint2(x[0] >> 16 | (x[1] & 0xFFFF0000u), x[2] >> 16 | (x[3] & 0xFFFF0000u));
      if constexpr (kKind == Quick::bf16_16) {
        *reinterpret_cast<uint2*>(side + 2 * at) =
            make_uint2((x[0] & 0xFFFFu) | x[1] << 16, (x[2] & 0xFFFFu) | x[3] << 16);
      } else if constexpr (kKind == Quick::bf16_8) {
        *reinterpret_cast<uint32_t*>(side + at) =
            (x[0] >> 8 & 0xFFu) | (x[1] & 0xFF00u) | (x[2] & 0xFF00u) << 8 | (x[3] & 0xFF00u) << 16;
      }
    }
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < kRun; ++i) {
    if (i >= count) continue;
    if constexpr (kKind == Quick::fp32) {
      reinterpret_cast<uint32_t*>(codes)[at + i] = x[i];
    } else {
      reinterpret_cast<uint16_t*>(codes)[at + i] = static_cast<uint16_t>(x[i] >> 16);
      if constexpr (kKind == Quick::bf16_16)
        reinterpret_cast<uint16_t*>(side)[at + i] = static_cast<uint16_t>(x[i]);
      if constexpr (kKind == Quick::bf16_8) side[at + i] = static_cast<uint8_t>(x[i] >> 8);
    }
  }
}

// A gradient's run, of plain codes of 8, 16 or 32 bits.
__device__ inline void load_gradient(const UpdateBatch& batch, const UpdateTensor& tensor,
                                     const UpdateRecipe& recipe, uint64_t at, uint32_t count, uint32_t* x) {
  const uint8_t* codes = tensor.data[kGradient];
  if (recipe.gradient == Quick::fp32) return load_run<Quick::fp32>(codes, nullptr, at, count, x);
  if (recipe.gradient == Quick::bf16) return load_run<Quick::bf16>(codes, nullptr, at, count, x);
  const StoredView& view = batch.formats[recipe.format[kGradient]];
  if (view.bits == 16) {
    load_run<Quick::bf16>(codes, nullptr, at, count, x);
#pragma unroll
    for (uint32_t i = 0; i < kRun; ++i) x[i] >>= 16;
  } else {
    const uint32_t raw = count == kRun ? *reinterpret_cast<const uint32_t*>(codes + at) : 0;
#pragma unroll
    for (uint32_t i = 0; i < kRun; ++i) {
      x[i] = raw >> (8 * i) & 0xFFu;
      if (count < kRun && i < count) x[i] = codes[at + i];
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < kRun; ++i) x[i] = decode_quick(view.codec, x[i]);
}

// Rounds the patterns of the run that begins at element `at` to those of the storage; dropped bits are left 0. None is a NaN but
// that of kNanBits.
template <Quick kKind>
__device__ inline void round_run(const QuickCodec& codec, const StepState& state, uint32_t number,
                                 uint64_t at, uint32_t (&x)[kRun], PackedCount& seen) {
  if constexpr (kKind != Quick::fp32) {
    constexpr uint32_t kDropped = dropped_bits(kKind);
    constexpr uint32_t kUnit = 1u << kDropped;
    constexpr bool kRandom = kKind == Quick::bf16_random;
    PhiloxWords words = {};
    if constexpr (kRandom) {
      const RoundKey key = key_of(state, number, true);
      words = philox(round_counter(key, at / kRun), round_philox_key(key));
    }
    // Numbers that may become more than the largest, or 0, are rare: only then is each looked at.
    uint32_t most = 0, least = 0xFFFFFFFFu;
#pragma unroll
    for (uint32_t i = 0; i < kRun; ++i) {
      const uint32_t magnitude = x[i] & 0x7FFFFFFFu;
      most = magnitude > most ? magnitude : most;
      if constexpr (kDropped > 0) least = magnitude - 1 < least ? magnitude - 1 : least;
    }
    constexpr uint32_t kOver = 0x7F800000u - (kRandom ? kUnit - 1 : kUnit / 2);
    constexpr uint32_t kUnder = kRandom ? kUnit - 1 : kUnit / 2;
    if (most >= kOver || (kDropped > 0 && least < kUnder)) {
#pragma unroll
      for (uint32_t i = 0; i < kRun; ++i) {
        const Encoded made =
            encode_quick(codec, kRandom ? Round::stochastic : Round::nearest_even, x[i], words.word[i]);
        seen.add(made, x[i]);
        x[i] = made.code << kDropped;
      }
      return;
    }
    seen.amax = most > seen.amax ? most : seen.amax;
    if constexpr (kDropped > 0) {
#pragma unroll
      for (uint32_t i = 0; i < kRun; ++i) {
        if constexpr (kRandom) {
          x[i] += words.word[i] < x[i] << (32 - kDropped) ? kUnit : 0;
        } else {
          x[i] += kUnit / 2 - 1 + (x[i] >> kDropped & 1u);
        }
        x[i] &= 0u - kUnit;
      }
    }
  }
}

template <typename Optimizer, Quick kWeightKind, Quick kStateKind>
__global__ __launch_bounds__(kThreads, 3) void update_runs(ULP_TABLE(UpdateBatch) batch) {
  const StepState& state = *batch.state;
  if (state.skip != 0) return;
  const UpdatePlace place = place_of(batch);
  const UpdateTensor& tensor = batch.tensors[place.tensor];
  const UpdateRecipe& recipe = batch.recipes[tensor.recipe];
  const Optimizer optimizer = constants_of<Optimizer>(recipe);
  const UpdateScalars scalars = scalars_of(batch, recipe);
  const int states = optimizer.states();
  const uint64_t elements = tensor.elements;
  uint8_t* codes[3] = {tensor.data[kWeight], tensor.data[kState], tensor.data[kState + 1]};
  uint8_t* side = side_of(codes[kWeight], elements, 16);  // of split weights
  PackedCount seen[3];
  uint32_t counted = 0;  // updates; above 16 bits those that are cancelled
  const uint64_t end = place.end * kUpdateChunk;
  for (uint64_t first = (place.first + threadIdx.x / 32) * kUpdateChunk + threadIdx.x % 32 * kRun;
       first < end; first += blockDim.x / 32 * kUpdateChunk) {
    uint32_t count[2] = {kRun, kRun};
    if (first + kUpdateChunk / 2 + kRun > elements) {
#pragma unroll
      for (uint32_t run = 0; run < 2; ++run) {
        const uint64_t at = first + run * (kUpdateChunk / 2), left = at < elements ? elements - at : 0;
        count[run] = left < kRun ? static_cast<uint32_t>(left) : kRun;
      }
    }
    // All loads come before all that waits for them.
    uint32_t weight[2][kRun], grad[2][kRun], moment[2][Optimizer::kStates][kRun] = {};
#pragma unroll
    for (uint32_t run = 0; run < 2; ++run) {
      const uint64_t at = first + run * (kUpdateChunk / 2);
      load_gradient(batch, tensor, recipe, at, count[run], grad[run]);
      load_run<kWeightKind>(codes[kWeight], side, at, count[run], weight[run]);
#pragma unroll
      for (int k = 0; k < Optimizer::kStates; ++k) {
        if (k < states) load_run<kStateKind>(codes[kState + k], nullptr, at, count[run], moment[run][k]);
      }
    }
#pragma unroll
    for (uint32_t run = 0; run < 2; ++run) {
      const uint64_t at = first + run * (kUpdateChunk / 2);
      uint32_t before[kRun];
      uint32_t there = 0;  // a bit for each update that is not 0
#pragma unroll
      for (uint32_t i = 0; i < kRun; ++i) {
        before[i] = weight[run][i];
        float values[Optimizer::kStates];
#pragma unroll
        for (int k = 0; k < Optimizer::kStates; ++k) values[k] = bits_float(moment[run][k][i]);
        const float old = bits_float(before[i]);
        const float decrease = optimizer.decrease(scalars, old, bits_float(grad[run][i]), values);
        weight[run][i] = float_bits(direct_update(old, decrease));
#pragma unroll
        for (int k = 0; k < Optimizer::kStates; ++k) moment[run][k][i] = float_bits(values[k]);
        there |= decrease != 0 ? 1u << i : 0u;
      }
      if (count[run] < kRun) {
        // What is beyond the end neither counts nor is looked at.
        there &= (1u << count[run]) - 1;
#pragma unroll
        for (uint32_t i = 0; i < kRun; ++i) {
          if (i < count[run]) continue;
          weight[run][i] = 0;
#pragma unroll
          for (int k = 0; k < Optimizer::kStates; ++k) moment[run][k][i] = 0;
        }
      }
      round_run<kWeightKind>(batch.formats[recipe.format[kWeight]].codec, state, tensor.number[kWeight], at,
                             weight[run], seen[kWeight]);
      store_run<kWeightKind>(codes[kWeight], side, at, count[run], weight[run]);
#pragma unroll
      for (uint32_t i = 0; i < kRun; ++i) {
        const bool same = bits_float(weight[run][i]) == bits_float(before[i]);
        counted += (there >> i & 1u) == 0 ? 0u : same ? 0x10001u : 1u;
      }
#pragma unroll
      for (int k = 0; k < Optimizer::kStates; ++k) {
        if (k >= states) continue;
        round_run<kStateKind>(batch.formats[recipe.format[kState + k]].codec, state,
                              tensor.number[kState + k], at, moment[run][k], seen[kState + k]);
        store_run<kStateKind>(codes[kState + k], nullptr, at, count[run], moment[run][k]);
      }
    }
  }
  if constexpr (kWeightKind != Quick::fp32) report(seen[kWeight].counts(), stats_of(batch, tensor, kWeight));
  if constexpr (kStateKind != Quick::fp32) {
#pragma unroll
    for (int k = 0; k < Optimizer::kStates; ++k)
      report(seen[kState + k].counts(), stats_of(batch, tensor, kState + k));
  }
  report(UpdateCount{counted & 0xFFFFu, counted >> 16}, counts_of(batch, tensor));
}

template <typename Optimizer>
auto kernel_for(Quick weight, Quick state) {
  const bool wide = state == Quick::fp32;
  switch (weight) {
    case Quick::fp32:
      return wide ? update_runs<Optimizer, Quick::fp32, Quick::fp32>
                  : update_runs<Optimizer, Quick::fp32, Quick::bf16>;
    case Quick::bf16:
      return wide ? update_runs<Optimizer, Quick::bf16, Quick::fp32>
                  : update_runs<Optimizer, Quick::bf16, Quick::bf16>;
    case Quick::bf16_random:
      return update_runs<Optimizer, Quick::bf16_random, Quick::bf16>;
    case Quick::bf16_16:
      return wide ? update_runs<Optimizer, Quick::bf16_16, Quick::fp32>
                  : update_runs<Optimizer, Quick::bf16_16, Quick::bf16>;
    default:
      return update_runs<Optimizer, Quick::bf16_8, Quick::bf16>;
  }
}

}  // namespace

void set_blocks(UpdateBatch& batch) {
  constexpr uint32_t kWarps = kThreads / 32, kBlocks = 132 * 16;
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < batch.count; ++i)
    chunks += (batch.tensors[i].elements + kUpdateChunk - 1) / kUpdateChunk;
  // Few blocks report seldom; many share the work out evenly.
  const uint64_t share = (chunks / kBlocks + kWarps - 1) / kWarps * kWarps;
  batch.chunks = static_cast<uint32_t>(share < kWarps                ? kWarps
                                       : share > kMostShare * kWarps ? kMostShare * kWarps
                                                                     : share);
  batch.first_block[0] = 0;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const uint64_t span = uint64_t{batch.chunks} * kUpdateChunk;
    batch.first_block[i + 1] =
        batch.first_block[i] + static_cast<uint32_t>((batch.tensors[i].elements + span - 1) / span);
  }
}

void update(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream) {
  if (batch.first_block[batch.count] == 0) return;
  if (kernel.narrow || !has_kernel(kernel.weight, kernel.state)) return update_any(kernel, batch, stream);
  decltype(&update_runs<Sgd, Quick::fp32, Quick::fp32>) found = nullptr;
  switch (kernel.optimizer) {
    case 0:
      found = kernel_for<Sgd>(kernel.weight, kernel.state);
      break;
    case 1:
      found = kernel_for<Adam>(kernel.weight, kernel.state);
      break;
    case 2:
      found = kernel_for<AdamW>(kernel.weight, kernel.state);
      break;
    default:
      found = kernel_for<Adagrad>(kernel.weight, kernel.state);
  }
  launch(found, {batch.first_block[batch.count], kThreads}, stream, batch);
}

}  // namespace ulp::cuda
