// Optimizer steps in fp32 arithmetic for the storages that most parameters have, in so few
// instructions that they are bound by memory. fp32, bf16 and bf16 with 16 or 8 extra bits are fp32
// patterns truncated to 32, 16 or 24 bits, so all of them are handled as patterns.
//
// A warp takes 256 elements, a lane eight of them. If no tensor has four-byte elements a lane's
// eight are neighbours, sixteen bytes of each tensor; otherwise they are two runs of four that are
// 128 elements apart. So every access of a warp is contiguous. A lane loads everything, computes
// the step without checking for rare cases, and checks afterwards; if the check fails it starts
// again, run by run, on the careful path.
#include "ulp/backend/cuda/optimizer/update.h"

#include "ulp/backend/cuda/optimizer/update_device.h"
#include "ulp/backend/cuda/optimizer/update_lane.h"
#include "ulp/backend/cuda/optimizer/update_unchecked.h"

namespace ulp::cuda {
namespace {

constexpr uint32_t kMostShare = 16;  // chunks of a warp

// The range events that one thread counted, in few registers: ten bits for each kind.
struct PackedCount {
  uint32_t events = 0, amax = 0;

  __device__ void add(const Encoded& made, uint32_t pattern) {
    RangeCount one;
    one.add(made, pattern);
    events += one.overflow | one.underflow << 10 | one.nan << 20;
    add_most(one.amax);
  }
  __device__ void add_most(uint32_t pattern) { amax = pattern > amax ? pattern : amax; }
  __device__ RangeCount counts() const { return {events & 1023u, events >> 10 & 1023u, events >> 20, amax}; }
};
static_assert(kMostShare * kUpdateChunk / 32 < 1024);

// The patterns of a run. `count` of them exist; the others are 0.
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

// Stores them. Dropped bits are ignored.
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

// A run of a gradient with plain codes of 8, 16 or 32 bits.
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

// Rounds the patterns of the run that begins at element `at` to those of the storage; dropped bits
// become 0. The only NaN is kNanBits.
template <Quick kKind>
__device__ inline void round_run(const QuickCodec& codec, const StepState& state, uint32_t number,
                                 uint64_t at, uint32_t (&x)[kRun], PackedCount& seen) {
  if constexpr (kKind != Quick::fp32) {
    constexpr bool kRandom = kKind == Quick::bf16_random;
    PhiloxWords words = {};
    if constexpr (kRandom) {
      const RoundKey key = key_of(state, number, true);
      words = philox(round_counter(key, at / kRun), round_philox_key(key));
    }
#pragma unroll
    for (uint32_t i = 0; i < kRun; ++i) {
      const Encoded made =
          encode_quick(codec, kRandom ? Round::stochastic : Round::nearest_even, x[i], words.word[i]);
      seen.add(made, x[i]);
      x[i] = made.code << dropped_bits(kKind);
    }
  }
}

// The gradient's codes, of 8, 16 or 32 bits.
template <bool kNear>
__device__ inline void fetch_gradient(const uint8_t* codes, uint32_t bits, uint64_t at,
                                      uint32_t (&raw)[kLane]) {
  if (bits == 32) {
    fetch<4, kNear>(codes, at, raw);
  } else if (bits == 16) {
    fetch<2, kNear>(codes, at, raw);
  } else {
    fetch<1, kNear>(codes, at, raw);
  }
}
__device__ inline void decode_gradient(Quick kind, uint32_t bits, const QuickCodec& codec,
                                       uint32_t (&x)[kLane]) {
  if (kind == Quick::fp32) return;
  const uint32_t raw[4] = {x[0], x[1], x[2], x[3]};
  if (kind == Quick::bf16) {
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) x[i] = bf16_pattern(raw, i);
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < kLane; ++i) {
    const uint32_t code =
        bits == 16 ? raw[i / 2] >> (i % 2 * 16) & 0xFFFFu : raw[i / 4] >> (i % 4 * 8) & 0xFFu;
    x[i] = decode_quick(codec, code);
  }
}

// A thread's view of its tensors.
template <typename Optimizer, Quick kWeightKind, Quick kStateKind>
struct Steps {
  static constexpr bool kNear = kWeightKind != Quick::fp32 && kStateKind != Quick::fp32;
  static constexpr int kStates = Optimizer::kStates;

  const UpdateBatch& batch;
  const UpdateTensor& tensor;
  const UpdateRecipe& recipe;
  const StepState& state;
  const Optimizer optimizer;
  const UpdateScalars scalars;
  const int states;
  uint8_t* const codes[3];
  uint8_t* const side;  // of split weights
  const uint32_t gradient_bits;

  PackedCount seen[3] = {};
  uint32_t counted = 0;  // updates; cancelled ones in the bits above 16

  __device__ Steps(const UpdateBatch& all, const UpdateTensor& one)
      : batch(all),
        tensor(one),
        recipe(all.recipes[one.recipe]),
        state(*all.state),
        optimizer(constants_of<Optimizer>(recipe)),
        scalars(scalars_of(all, recipe)),
        states(optimizer.states()),
        codes{one.data[kWeight], one.data[kState], one.data[kState + 1]},
        side(side_of(one.data[kWeight], one.elements, 16)),
        gradient_bits(recipe.gradient == Quick::fp32 ? 32 : all.formats[recipe.format[kGradient]].bits) {}

  __device__ const QuickCodec& codec(int which) const { return batch.formats[recipe.format[which]].codec; }

  // The fast path for the eight elements of a lane, which must all exist. False if something is not
  // ordinary; then nothing has changed.
  __device__ bool quickly(uint64_t at) {
    Lane<kWeightKind> weight;
    Lane<kStateKind> moment[kStates] = {};
    uint32_t grad[kLane];
    // All loads come before their first use.
    fetch_gradient<kNear>(tensor.data[kGradient], gradient_bits, at, grad);
    weight.template load<kNear>(codes[kWeight], side, at);
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k < states) moment[k].template load<kNear>(codes[kState + k], nullptr, at);
    }
    decode_gradient(recipe.gradient, gradient_bits, codec(kGradient), grad);

    constexpr bool kExact = Lane<kWeightKind>::kExact;
    Magnitudes weights, magnitudes[kStates];
    uint32_t least = 0xFFFFFFFFu, state_least = 0xFFFFFFFFu;
    uint32_t zeros = 0, same = 0;  // their negatives
    float next[kLane], values[kStates][kLane];
#pragma unroll
    for (uint32_t i = 0; i < kLane; ++i) {
      float each[kStates];
#pragma unroll
      for (int k = 0; k < kStates; ++k) each[k] = bits_float(moment[k].pattern(i));
      const float old = bits_float(weight.pattern(i));
      const float decrease = optimizer.decrease(scalars, old, bits_float(grad[i]), each, Unchecked{});
      next[i] = old - decrease;
      zeros += mask_equal(decrease, 0);
      if constexpr (kExact) same += mask_equal(next[i], old);
      weights.add(next[i]);
      if constexpr (!kExact) least = less(least, next[i]);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        values[k][i] = each[k];
        magnitudes[k].add(each[k]);
        if constexpr (kStateKind != Quick::fp32 && !kAwayFromZero<Optimizer>)
          state_least = less(state_least, each[k]);
      }
    }
    bool fine = ordinary<kWeightKind>(weights.most, least) && may_divide(optimizer, scalars, magnitudes);
#pragma unroll
    for (int k = 0; k < kStates; ++k)
      fine = fine && (k >= states || ordinary<kStateKind>(magnitudes[k].most, state_least));
    if (!fine) return false;

    PhiloxWords words[2] = {};
    if constexpr (kWeightKind == Quick::bf16_random) {
      static_assert(kNear);
      const RoundKey key = key_of(state, tensor.number[kWeight], true);
#pragma unroll
      for (uint32_t run = 0; run < 2; ++run)
        words[run] = philox(round_counter(key, at / kRun + run), round_philox_key(key));
    }
    if constexpr (kExact) {
      weight.write(next, words);
    } else {
      const Lane<kWeightKind> old = weight;
      weight.write(next, words);
#pragma unroll
      for (uint32_t i = 0; i < kLane; ++i)
        same += mask_equal(bits_float(weight.pattern(i)), bits_float(old.pattern(i)));
    }
    weight.template store<kNear>(codes[kWeight], side, at);
    seen[kWeight].add_most(float_bits(weights.most));
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      if (k >= states) continue;
      moment[k].write(values[k], nullptr);
      moment[k].template store<kNear>(codes[kState + k], nullptr, at);
      seen[kState + k].add_most(float_bits(magnitudes[k].most));
    }
    // An update of zero changes nothing; other updates that change nothing are cancelled.
    counted += kLane + zeros + ((zeros - same) << 16);
    return true;
  }

  // The careful path, run by run; the tensor may end within a run.
  __device__ void carefully(uint64_t at) {
#pragma unroll 1
    for (uint32_t run = 0; run < 2; ++run, at += kNear ? kRun : kUpdateChunk / 2) {
      const uint64_t left = at < tensor.elements ? tensor.elements - at : 0;
      const uint32_t count = left < kRun ? static_cast<uint32_t>(left) : kRun;
      if (count == 0) return;
      uint32_t weight[kRun], grad[kRun], moment[kStates][kRun] = {};
      load_gradient(batch, tensor, recipe, at, count, grad);
      load_run<kWeightKind>(codes[kWeight], side, at, count, weight);
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (k < states) load_run<kStateKind>(codes[kState + k], nullptr, at, count, moment[k]);
      }
      uint32_t before[kRun];
      uint32_t there = 0;  // a bit for each update that is not 0
#pragma unroll
      for (uint32_t i = 0; i < kRun; ++i) {
        before[i] = weight[i];
        float values[kStates];
#pragma unroll
        for (int k = 0; k < kStates; ++k) values[k] = bits_float(moment[k][i]);
        const float old = bits_float(before[i]);
        const float decrease = optimizer.decrease(scalars, old, bits_float(grad[i]), values);
        // Elements beyond the end are neither counted nor checked.
        const bool inside = i < count;
        weight[i] = inside ? float_bits(direct_update(old, decrease)) : 0;
#pragma unroll
        for (int k = 0; k < kStates; ++k) moment[k][i] = inside ? float_bits(values[k]) : 0;
        there |= inside && decrease != 0 ? 1u << i : 0u;
      }
      round_run<kWeightKind>(codec(kWeight), state, tensor.number[kWeight], at, weight, seen[kWeight]);
      store_run<kWeightKind>(codes[kWeight], side, at, count, weight);
#pragma unroll
      for (uint32_t i = 0; i < kRun; ++i) {
        const bool same = bits_float(weight[i]) == bits_float(before[i]);
        counted += (there >> i & 1u) == 0 ? 0u : same ? 0x10001u : 1u;
      }
#pragma unroll
      for (int k = 0; k < kStates; ++k) {
        if (k >= states) continue;
        round_run<kStateKind>(codec(kState + k), state, tensor.number[kState + k], at, moment[k],
                              seen[kState + k]);
        store_run<kStateKind>(codes[kState + k], nullptr, at, count, moment[k]);
      }
    }
  }
};

template <typename Optimizer, Quick kWeightKind, Quick kStateKind>
__global__ __launch_bounds__(kThreads, 3) void update_runs(ULP_TABLE(UpdateBatch) batch) {
  if (batch.state->skip != 0) return;
  const UpdatePlace place = place_of(batch);
  const UpdateTensor& tensor = batch.tensors[place.tensor];
  Steps<Optimizer, kWeightKind, kStateKind> steps(batch, tensor);
  const uint64_t lane = threadIdx.x % 32 * (steps.kNear ? kLane : kRun);
  for (uint64_t chunk = place.first + threadIdx.x / 32; chunk < place.end; chunk += kThreads / 32) {
    const uint64_t first = chunk * kUpdateChunk;
    const bool whole = first + kUpdateChunk <= tensor.elements;
    if (!whole || !steps.quickly(first + lane)) steps.carefully(first + lane);
  }
  if constexpr (kWeightKind != Quick::fp32)
    report(steps.seen[kWeight].counts(), stats_of(batch, tensor, kWeight));
  if constexpr (kStateKind != Quick::fp32) {
#pragma unroll
    for (int k = 0; k < Optimizer::kStates; ++k)
      report(steps.seen[kState + k].counts(), stats_of(batch, tensor, kState + k));
  }
  report(UpdateCount{steps.counted & 0xFFFFu, steps.counted >> 16}, counts_of(batch, tensor));
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
  constexpr uint32_t kWarps = kThreads / 32, kBlocks = kProcessors * 16;
  uint64_t chunks = 0;
  for (uint32_t i = 0; i < batch.count; ++i)
    chunks += (elements_of(batch.tensors[i]) + kUpdateChunk - 1) / kUpdateChunk;
  // Few blocks report rarely; many share the work evenly.
  const uint64_t share = (chunks / kBlocks + kWarps - 1) / kWarps * kWarps;
  batch.chunks = static_cast<uint32_t>(share < kWarps                ? kWarps
                                       : share > kMostShare * kWarps ? kMostShare * kWarps
                                                                     : share);
  batch.first_block[0] = 0;
  for (uint32_t i = 0; i < batch.count; ++i) {
    const uint64_t span = uint64_t{batch.chunks} * kUpdateChunk;
    batch.first_block[i + 1] =
        batch.first_block[i] + static_cast<uint32_t>((elements_of(batch.tensors[i]) + span - 1) / span);
  }
}

void update(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream) {
  if (batch.first_block[batch.count] == 0) return;
  if (kernel.narrow || !has_kernel(kernel.weight, kernel.state)) return update_any(kernel, batch, stream);
  decltype(&update_runs<Sgd, Quick::fp32, Quick::fp32>) found = nullptr;
  Optimizers::visit(kernel.optimizer,
                    [&]<typename Op>() { found = kernel_for<Op>(kernel.weight, kernel.state); });
  launch(found, {batch.first_block[batch.count], kThreads}, stream, batch);
}

}  // namespace ulp::cuda
