// Conversion of whole tensors, or ranges of their rows, between their storage and plain arrays, for
// library products and kernels on plain numbers. Arrays are fp32, bf16, fp16 or e4m3, with rows
// padded with zeros to a channel count that suits a library.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/runtime/processors.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

enum class DecodedType : uint8_t { fp32, bf16, fp16, e4m3 };

ULP_HD constexpr uint32_t target_bytes(DecodedType target) {
  return target == DecodedType::fp32 ? 4 : target == DecodedType::e4m3 ? 1 : 2;
}

// Rows of a tensor, and how many elements a row has in the array.
struct Rows {
  uint64_t first = 0, count = 0;
  uint64_t channels = 1, padded = 1;

  ULP_HD constexpr uint64_t elements() const { return count * channels; }
  static Rows all(uint64_t elements) { return {0, 1, elements, elements}; }
};

// Bytes of scratch for S2FP8, which needs a pass over the whole tensor: the sums of as many blocks as
// there are multiprocessors. Aligned to 8. Other storages need none; see convert_bytes in operands.h.
inline constexpr size_t kConvertSpace = (24 * size_t{kProcessors} + 63) / 64 * 64;

// `target` must hold every value of the view: nothing is rounded here except a weight to its
// operand format. An operand in S2FP8 or scaled storage is rounded as a whole, to unpadded fp32;
// only then is `space` used.
void decode(const ReadView& view, const StepState* state, const Rows& rows, DecodedType target, void* out,
            void* space, Stream stream);

// Writes rows of fp32 values, each rounded once, and counts range events. The first element must be
// a multiple of kGroup. Storages that need a larger pass (scaled, S2FP8) take the whole tensor at
// once.
void encode(const WriteView& view, const StepState* state, const Rows& rows, const float* in, void* space,
            Stream stream);

}  // namespace ulp::cuda
