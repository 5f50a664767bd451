// The inner loops behind codec.h, split.h, scaled.h and s2fp8.h: one thread, one run of elements,
// unpacked codes. Two families with the same signatures: `reference`, plain loops over the scalar
// definition, and the vector kernels of kernels_simd.cc. Private to this folder.
#pragma once

#include <array>
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

// S2FP8's two passes over a tensor. The first gathers what a tensor's numbers are; the second writes
// codes. There are two ways to write them, and both have the bits of s2fp8_squeeze and e5m2.
struct S2fp8Survey {
  LogSums logs;
  uint64_t infinite = 0, nan = 0;
  uint32_t most = 0;  // the pattern of the largest magnitude, NaN left out

  void merge(const S2fp8Survey& other) {
    logs.merge(other.logs);
    infinite += other.infinite;
    nan += other.nan;
    most = other.most > most ? other.most : most;
  }
};
using Survey = S2fp8Survey (*)(const float* in, size_t n);
// x to Y, which e5m2 then rounds. For any unit, and for tensors that are not worth a table.
using Squeeze = void (*)(const S2fp8Map& map, const float* in, size_t n, float* out);

// For one map the code of a magnitude grows with it (s2fp8.h), so codes are ranges of magnitudes.
// least[c] is the pattern of the smallest finite magnitude whose code is at least c, kNoMagnitude if
// there is none.
//
// The range of a magnitude is found by its bucket: patterns are cut into buckets of 2^shift, from
// that of the smallest number that does not become zero on. A bucket has one border at most. So the
// code is `most` of the bucket, the largest code that it has, or one less.
inline constexpr uint32_t kS2fp8Codes = 128, kS2fp8Buckets = 512, kNoMagnitude = 0x7FFFFFFFu;
struct S2fp8Borders {
  alignas(64) uint32_t least[kS2fp8Codes];
  alignas(64) uint8_t most[kS2fp8Buckets + 4];  // the last four are read as parts of words, and not used
  uint32_t shift;
};
// least[c] from starts[c], the smallest log2|Y| of code c (s2fp8.cc).
using FindBorders = void (*)(const S2fp8Map& map, const float* starts, S2fp8Borders& borders);
// Cuts the buckets; false if some would have two borders: numbers from the subnormal ones to the
// largest.
bool cut_buckets(S2fp8Borders& borders);
// Codes by looking up the range. A NaN among the inputs gets some code: the caller corrects it.
// Returns how many are zero, but for their signs.
using EncodeByBorders = uint64_t (*)(const S2fp8Borders& borders, const float* in, size_t n, uint8_t* out);

// The values of the 128 codes without sign: from value[c], the bits of code c in e5m2, to what it
// restores to.
using Restore = void (*)(const S2fp8Map& map, uint32_t* value);
// Values of codes; value[c] has no sign.
using LookUp = void (*)(const uint32_t* value, const uint8_t* codes, size_t n, float* out);

struct Table {
  Encode encode;
  Decode decode;
  RandomWords random_words;
  Survey survey;
  Squeeze squeeze;
  FindBorders find_borders;
  EncodeByBorders encode_by_borders;  // null in the reference, which squeezes
  Restore restore;
  LookUp look_up;
};

// The kernels of the unit in use (simd.h).
const Table& table();

// The kernels of Highway's chosen target, each set from the file that compiles it.
void fill_codec_kernels(Table& table);
void fill_s2fp8_kernels(Table& table);

// The smallest log2|Y| that has at least the code, for every code; the same for all tensors. Of the
// code after the largest, the smallest that overflows.
const std::array<float, kS2fp8Codes>& s2fp8_starts();

// encode with the NaN rule above applied.
EncodeStats encode_run(const Table& kernels, const EncodeRun& run);

// Plain loops; the definition of correct.
EncodeStats reference_encode(const EncodeRun& run);
void reference_decode(const DecodeRun& run);
void reference_random_words(const RoundKey& key, uint64_t first, size_t n, uint32_t* out);
S2fp8Survey reference_survey(const float* in, size_t n);
void reference_squeeze(const S2fp8Map& map, const float* in, size_t n, float* out);
void reference_find_borders(const S2fp8Map& map, const float* starts, S2fp8Borders& borders);
uint64_t reference_encode_by_borders(const S2fp8Borders& borders, const float* in, size_t n, uint8_t* out);
void reference_restore(const S2fp8Map& map, uint32_t* value);
void reference_look_up(const uint32_t* value, const uint8_t* codes, size_t n, float* out);

}  // namespace ulp::kernels
