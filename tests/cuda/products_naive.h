// Plain loops on the GPU that products are held to: operands that a unit holds exactly, sums in
// double.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/library/cublaslt_matmul.h"
#include "ulp/backend/cuda/library/cudnn_conv.h"

namespace ulp::cuda {

// What operands are filled with.
enum class Fill : uint8_t {
  plain,      // all bits of the significand at random, magnitudes from 2^-4 to 1
  subnormal,  // subnormal numbers of the unit's type
  // As plain, times 2^100 (fp16: 2^12): brings products with subnormal numbers back to a normal
  // size.
  large,
};

void fill(Unit unit, Fill how, void* operand, int64_t count, uint64_t seed);

// How far a result is from the sum in double, in units of what is allowed: 2 (n + 8) 2^-23 sum |a|
// |b|, of native fp8, whose units cut every sum, 2^-10 sum |a| |b|. The largest over every
// `every`-th number; infinite if one is not a number. Of a result of 16 bits: how far the sum is
// from the numbers that are rounded to it, to nearest.
double conv_error(ConvKind kind, const ConvExtents& shape, Unit unit, const void* a, const void* b,
                  const void* out, Written written, int64_t every);
// `before` is what C held, for a product that adds to it; else null.
double matmul_error(const MatmulShape& shape, Unit unit, const void* a, const void* b, const float* before,
                    const void* out, Written written);

// How many 32-bit words differ.
uint64_t differences(const void* a, const void* b, int64_t words);
// How many codes of bf16 are not what the fp32 number is rounded to, to nearest even.
uint64_t rounded_otherwise(const float* wide, const void* codes, int64_t count);

}  // namespace ulp::cuda
