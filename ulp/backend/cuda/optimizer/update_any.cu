// The general optimizer kernel, for any storage, rule and arithmetic: a lane has a group of eight
// elements, a warp a block of scaled storage.
#include "ulp/backend/cuda/optimizer/update_device.h"

namespace ulp::cuda {
namespace {

__device__ inline StoredView view_of(const UpdateBatch& batch, const UpdateTensor& tensor,
                                     const UpdateRecipe& recipe, int which) {
  StoredView view = batch.formats[recipe.format[which]];
  view.codes = tensor.data[which];
  view.elements = tensor.elements;
  view.side = reinterpret_cast<uint32_t*>(side_of(view.codes, tensor.elements, view.bits));
  return view;
}

__device__ inline StoredView gradient_of(const UpdateBatch& batch, const UpdateTensor& tensor,
                                         const UpdateRecipe& recipe) {
  StoredView view = batch.formats[recipe.format[kGradient]];
  view.codes = tensor.data[kGradient];
  view.elements = elements_of(tensor);
  view.side = reinterpret_cast<uint32_t*>(side_of(view.codes, view.elements, view.bits));
  return view;
}

// Maps a group of the gradient to the weight's. A group without a row maps beyond the weight's end.
__device__ inline uint64_t group_of(const UpdateTensor& tensor, uint64_t of_gradient) {
  if (tensor.rows == nullptr) return of_gradient;
  const uint64_t row = of_gradient / tensor.row_groups, none = groups_of(tensor.elements);
  if (row >= tensor.row_count || tensor.rows[row] < 0) return none;
  return static_cast<uint64_t>(tensor.rows[row]) * tensor.row_groups + of_gradient % tensor.row_groups;
}

// Writes a group of `count` elements and leaves the stored values in x. All lanes of a warp must
// call it: together they have one block of scaled storage.
__device__ inline void write_any(const StoredView& view, Round mode, uint32_t number, const StepState& state,
                                 uint64_t group, uint32_t count, float (&x)[8], RangeCount& seen) {
  uint32_t code[8];
  if (view.fp32) {
#pragma unroll
    for (int i = 0; i < 8; ++i) code[i] = float_bits(x[i]);
    if (count > 0) store_codes(view.codes, 32, group, count, code);
    return;
  }
  QuickCodec codec = view.codec;
  if (view.kind == Stored::scaled) {
    uint32_t most = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t magnitude = float_bits(x[i]) & 0x7FFFFFFFu;
      if (i < count && magnitude < 0x7F800000u && magnitude > most) most = magnitude;
    }
    const int k = scale_exponent(view.codec.spec, mode, warp_max(most));
    if (threadIdx.x % 32 == 0)
      view.side[group * kGroup / kScaledBlock] = static_cast<uint32_t>(127 + k) << 23;
    codec = make_quick(scaled_spec(view.codec.spec, k));
  }
  if (count == 0) return;
  uint32_t words[8] = {};
  if (mode == Round::stochastic || view.random_high) group_words(key_of(state, number, true), group, words);
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    Encoded made = encode_quick(codec, mode, float_bits(x[i]), words[i]);
    if (view.nonzero && made.event == RangeEvent::underflow) made = {made.code | 1u, RangeEvent::none};
    if (i < count) seen.add(made, float_bits(x[i]));
    code[i] = made.code;
    x[i] = bits_float(decode_quick(codec, made.code));
  }
  if (view.kind == Stored::split) {
    uint32_t low[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const SplitCode parts = split_code(view.codec.spec, view.extra, view.random_high, code[i], words[i]);
      code[i] = parts.high;
      low[i] = parts.side;
    }
    store_codes(reinterpret_cast<uint8_t*>(view.side), view.side_bits, group, count, low);
  }
  store_codes(view.codes, view.bits, group, count, code);
}

template <typename Optimizer, typename Arithmetic>
__global__ __launch_bounds__(kThreads, 2) void update_groups(ULP_TABLE(UpdateBatch) batch) {
  const StepState& state = *batch.state;
  if (state.skip != 0) return;
  const UpdatePlace place = place_of(batch);
  const UpdateTensor& tensor = batch.tensors[place.tensor];
  const UpdateRecipe& recipe = batch.recipes[tensor.recipe];
  const Optimizer optimizer = constants_of<Optimizer>(recipe);
  Arithmetic arithmetic{};
  UpdateScalars scalars = scalars_of(batch, recipe);
  if constexpr (Arithmetic::kNarrow) {
    arithmetic = batch.arithmetic;
    scalars = narrow_scalars(scalars, optimizer.weight_decay, arithmetic);
  }
  const int states = optimizer.states();
  RangeCount seen[kChanged];
  UpdateCount counted;
  for (uint64_t chunk = place.first + threadIdx.x / 32; chunk < place.end; chunk += blockDim.x / 32) {
    const uint64_t of_gradient = chunk * (kUpdateChunk / kGroup) + threadIdx.x % 32;
    const uint64_t group = group_of(tensor, of_gradient), begin = group * kGroup;
    const uint64_t left = begin < tensor.elements ? tensor.elements - begin : 0;
    const uint32_t count = left < kGroup ? static_cast<uint32_t>(left) : kGroup;
    float grad[8] = {}, weight[8] = {}, kept[8] = {}, moment[2][8] = {};
    if (count > 0) {
      load_stored(gradient_of(batch, tensor, recipe), of_gradient, grad);
      load_stored(view_of(batch, tensor, recipe, kWeight), group, weight);
#pragma unroll
      for (int k = 0; k < Optimizer::kStates; ++k) {
        if (k < states) load_stored(view_of(batch, tensor, recipe, kState + k), group, moment[k]);
      }
      if (recipe.compensated) load_stored(view_of(batch, tensor, recipe, kCompensation), group, kept);
    }
    uint32_t words[8] = {};
    if (recipe.compensated && recipe.mode[kWeight] == Round::stochastic)
      group_words(key_of(state, tensor.number[kWeight], true), group, words);
    float before[8];
    uint32_t lost = 0;  // a bit for each element whose update shows in nothing but the weight
    const QuickCodec& codec = batch.formats[recipe.format[kWeight]].codec;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
      before[i] = weight[i];
      float pair[2] = {moment[0][i], moment[1][i]};
      const float decrease = optimizer.decrease(scalars, weight[i], grad[i], pair, arithmetic);
      moment[0][i] = pair[0];
      moment[1][i] = pair[1];
      bool there = decrease != 0 && i < count;
      counted.updates += there ? 1 : 0;
      if (recipe.compensated) {
        const Compensated made = kahan_update(weight[i], decrease, kept[i], recipe.near, [&](float exact) {
          const uint32_t sum = float_bits(settle_nan(exact));
          const Encoded rounded = encode_quick(codec, recipe.mode[kWeight], sum, words[i]);
          if (i < count) seen[kWeight].add(rounded, sum);
          return bits_float(decode_quick(codec, rounded.code));
        });
        there = there && made.compensation == kept[i];
        weight[i] = made.weight;
        kept[i] = made.compensation;
      } else {
        weight[i] = direct_update(weight[i], decrease);
      }
      lost |= static_cast<uint32_t>(there) << i;
    }
    // The range events of a compensated weight are those of the sum.
    const RangeCount of_sums = seen[kWeight];
    const Round mode = recipe.compensated ? Round::nearest_even : recipe.mode[kWeight];
    write_any(view_of(batch, tensor, recipe, kWeight), mode, tensor.number[kWeight], state, group, count,
              weight, seen[kWeight]);
    if (recipe.compensated) seen[kWeight] = of_sums;
#pragma unroll
    for (int k = 0; k < Optimizer::kStates; ++k) {
      if (k >= states) continue;
      write_any(view_of(batch, tensor, recipe, kState + k), recipe.mode[kState + k],
                tensor.number[kState + k], state, group, count, moment[k], seen[kState + k]);
    }
    if (recipe.compensated) {
      write_any(view_of(batch, tensor, recipe, kCompensation), recipe.mode[kCompensation],
                tensor.number[kCompensation], state, group, count, kept, seen[kCompensation]);
    }
    if (tensor.before == nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        counted.cancelled += (lost >> i & 1u) != 0 && weight[i] == before[i] ? 1 : 0;
    } else {
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        if (i < count) tensor.before[begin + i] = (lost >> i & 1u) != 0 ? before[i] : bits_float(kNanBits);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kChanged; ++k) report(seen[k], stats_of(batch, tensor, k));
  report(counted, counts_of(batch, tensor));
}

template <typename Optimizer>
void launch_any(bool narrow, const UpdateBatch& batch, Stream stream) {
  const auto kernel = narrow ? update_groups<Optimizer, Nearest> : update_groups<Optimizer, Wide>;
  launch(kernel, {batch.first_block[batch.count], kThreads}, stream, batch);
}

__global__ void count_same(StoredView weight, const float* before, const StepState* state,
                           UpdateCounts* counts) {
  if (state->skip != 0) return;
  UpdateCount counted;
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < weight.elements;
       i += uint64_t{gridDim.x} * blockDim.x) {
    counted.cancelled += load_one(weight, i) == before[i] ? 1 : 0;
  }
  report(counted, counts);
}

}  // namespace

void update_any(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream) {
  Optimizers::visit(kernel.optimizer, [&]<typename Op>() { launch_any<Op>(kernel.narrow, batch, stream); });
}

void count_cancelled(const StoredView& weight, const float* before, const StepState* state,
                     UpdateCounts* counts, Stream stream) {
  launch(count_same, {blocks_for(weight.elements), kThreads}, stream, weight, before, state, counts);
}

}  // namespace ulp::cuda
