// One source for host and device: functions marked ULP_HD are compiled by g++ for the CPU and by
// nvcc for both sides. They use integers, plain IEEE fp32/fp64 operations and explicit fma only, so
// both give the same bits (the build forbids contraction on both sides).
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ULP_HD __host__ __device__
#else
#define ULP_HD
#endif

namespace ulp {

// Bit patterns and values. Patterns travel as integers wherever a NaN may be among them: a float
// register may quieten a signalling NaN, an integer never does.
ULP_HD constexpr uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
ULP_HD constexpr float bits_float(uint32_t b) { return __builtin_bit_cast(float, b); }

}  // namespace ulp
