// Whole tensors, or runs of their rows, between their storage and plain arrays, as the libraries' products and kernels on plain numbers take
// them: fp32, bf16, fp16 or e4m3, rows padded with zeros to a number of channels that a library likes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

enum class PlainType : uint8_t { fp32, bf16, fp16, e4m3 };

ULP_HD constexpr uint32_t target_bytes(PlainType target) {
  return target == PlainType::fp32 ? 4 : target == PlainType::e4m3 ? 1 : 2;
}

// Rows of a tensor, and how many elements a row has in the array.
struct Rows {
  uint64_t first = 0, count = 0;
  uint64_t channels = 1, padded = 1;

  ULP_HD constexpr uint64_t elements() const { return count * channels; }
  static Rows all(uint64_t elements) { return {0, 1, elements, elements}; }
};

// Bytes that conversions of tensors whose storage looks at all of them need, aligned to 8: for the sums of S2FP8.
inline constexpr size_t kConvertSpace = 64;

// `out` must hold every number of the view: nothing is rounded here but a weight to its operand's format. An operand in S2FP8 or
// scaled storage is rounded as a whole, in fp32, unpadded. `space` is read there alone.
void decode(const ReadView& view, const StepState* state, const Rows& rows, PlainType target, void* out,
            void* space, Stream stream);

// Writes rows of fp32 numbers, each once, with its range events. The first element must be a multiple of kGroup. Storages that look at more
// (scaled, S2FP8) take the whole tensor at once.
void encode(const WriteView& view, const StepState* state, const Rows& rows, const float* in, void* space,
            Stream stream);

}  // namespace ulp::cuda
