#include "ulp/backend/cuda/ops/batch.h"

#include "ulp/backend/cuda/access/codec.h"
#include "ulp/backend/cuda/runtime/launch.h"

namespace ulp::cuda {
namespace {

// A thread makes a group of eight elements. They are usually of one example, so its placement is
// computed once.
__global__ void image_groups(const __grid_constant__ ImageBatchCall call,
                             const __grid_constant__ WriteView out, const StepState* state) {
  const auto row = static_cast<uint32_t>(call.width * call.channels);
  const uint32_t elements = static_cast<uint32_t>(call.height) * row;
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups_of(out.stored.elements);
       g += uint64_t{gridDim.x} * blockDim.x) {
    float made[8] = {};
    const uint32_t count = count_in(out.stored, g);
    uint64_t place = g * kGroup / elements;
    auto at = static_cast<uint32_t>(g * kGroup - place * elements);
    auto example = static_cast<uint64_t>(call.examples[place]);
    Placement from = placement(call.augment, state->epoch, example);
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      if (i >= count) break;
      if (at == elements) {
        at = 0;
        example = static_cast<uint64_t>(call.examples[++place]);
        from = placement(call.augment, state->epoch, example);
      }
      const auto y = static_cast<int32_t>(at / row), rest = static_cast<int32_t>(at % row);
      const int32_t x = rest / call.channels, channel = rest % call.channels;
      made[i] = normalised(placed_byte(call.images + example * elements, call.height, call.width,
                                       call.channels, from, y, x, channel),
                           call.normalise[channel]);
      ++at;
    }
    store(out, *state, g, made, seen);
  }
  report(seen, out.stats);
}

__global__ void byte_groups(const uint8_t* bytes, const __grid_constant__ Normalise normalise,
                            const __grid_constant__ WriteView out, const StepState* state) {
  RangeCount seen;
  for (uint64_t g = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; g < groups_of(out.stored.elements);
       g += uint64_t{gridDim.x} * blockDim.x) {
    float made[8] = {};
    const uint32_t count = count_in(out.stored, g);
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      if (i < count) made[i] = normalised(bytes[g * kGroup + i], normalise);
    }
    store(out, *state, g, made, seen);
  }
  report(seen, out.stats);
}

__global__ void take_words(const uint32_t* from, const int32_t* examples, uint64_t count, uint64_t width,
                           uint32_t* to) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count * width;
       i += uint64_t{gridDim.x} * blockDim.x) {
    const uint64_t row = i / width;
    to[i] = from[static_cast<uint64_t>(examples[row]) * width + (i - row * width)];
  }
}

}  // namespace

void make_image_batch(const ImageBatchCall& call, const WriteView& out, const StepState* state,
                      Stream stream) {
  launch(image_groups, {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, call, out, state);
}

void make_from_bytes(const uint8_t* bytes, const Normalise& normalise, const WriteView& out,
                     const StepState* state, Stream stream) {
  launch(byte_groups, {blocks_for(groups_of(out.stored.elements)), kThreads}, stream, bytes, normalise, out,
         state);
}

void take_rows(const uint32_t* from, const int32_t* examples, uint64_t count, uint64_t width, uint32_t* to,
               Stream stream) {
  launch(take_words, {blocks_for(count * width), kThreads}, stream, from, examples, count, width, to);
}

}  // namespace ulp::cuda
