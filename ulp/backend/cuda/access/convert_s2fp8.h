// Conversion of whole tensors to and from S2FP8, with the bits of ulp/numeric/s2fp8.h. Behind
// convert.h.
//
// Writing takes two launches. The blocks of the first sum logarithms, each for itself; every block
// of the second adds up what they found and writes codes. Small tensors take one launch of one
// block. Sums are integers, so the order does not matter. Reading goes by a table of the 256
// values, which every block makes.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/convert.h"

namespace ulp::cuda {

// Writes n values as codes, and alpha and beta beside them. An update that is skipped writes nothing.
void encode_s2fp8(const WriteView& view, const StepState* state, const float* in, uint64_t n, void* space,
                  Stream stream);

// Rounds n values to an operand in S2FP8; `in` and `out` may be the same.
void round_to_s2fp8(const ReadView& view, const float* in, uint64_t n, void* out, void* space, Stream stream);

// Reads rows as fp32. False for another target.
bool decode_s2fp8(const ReadView& view, const Rows& rows, DecodedType target, void* out, Stream stream);

}  // namespace ulp::cuda
