// The inner loops behind codec.h, split.h, scaled.h and s2fp8.h: one thread, one run of elements,
// unpacked codes. Two families with the same signatures: `reference`, plain loops over the scalar
// definition, and the vector kernels of kernels_simd.cc. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/numeric/rounding.h"
#include "ulp/numeric/s2fp8.h"
#include "ulp/numeric/scalar.h"
#include "ulp/numeric/stats.h"

namespace ulp::kernels {

// Elements per kernel call: enough to hide its set-up, few enough that temporaries stay near the
// core.
inline constexpr size_t kRun = 4096;

struct EncodeRun {
  const CodecSpec* spec;
  Round mode;
  const float* in;
  size_t n;
  void* out;  // n codes, code_bytes (1, 2 or 4) each
  int code_bytes;
  const uint32_t* random;  // n words; read in stochastic mode only
};

struct DecodeRun {
  const CodecSpec* spec;
  const void* in;  // n codes, code_bytes each
  int code_bytes;
  float* out;
  size_t n;
  bool stream;  // the output is far larger than the cache: write past it
};

// A vector kernel may return statistics with a NaN in amax: among the inputs was a NaN, or a number
// too large for the kernel's arithmetic; everything it wrote and counted is void, and the reference
// does the run again. So such inputs cost the common case nothing.
using Encode = EncodeStats (*)(const EncodeRun&);
using Decode = void (*)(const DecodeRun&);
// The random words of elements first .. first + n - 1.
using RandomWords = void (*)(const RoundKey&, uint64_t first, size_t n, uint32_t* out);

// S2FP8's two passes over a tensor: the logarithms' sum and maximum, and x to Y.
struct SqueezeReport {
  uint64_t infinite;  // infinite inputs
  float amax;         // largest input magnitude, NaN left out
};
using SumLogs = LogSums (*)(const float* in, size_t n);
using Squeeze = SqueezeReport (*)(const S2fp8Map& map, const float* in, size_t n, float* out);

struct Table {
  Encode encode;
  Decode decode;
  RandomWords random_words;
  SumLogs log_sums;
  Squeeze squeeze;
};

// The kernels of the unit in use (simd.h).
const Table& table();

// The kernels of Highway's chosen target, each set from the file that compiles it.
void fill_codec_kernels(Table& table);
void fill_s2fp8_kernels(Table& table);

// encode with the NaN rule above applied.
EncodeStats encode_run(const Table& kernels, const EncodeRun& run);

// Plain loops; the definition of correct.
EncodeStats reference_encode(const EncodeRun& run);
void reference_decode(const DecodeRun& run);
void reference_random_words(const RoundKey& key, uint64_t first, size_t n, uint32_t* out);
LogSums reference_log_sums(const float* in, size_t n);
SqueezeReport reference_squeeze(const S2fp8Map& map, const float* in, size_t n, float* out);

}  // namespace ulp::kernels
