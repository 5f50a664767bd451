// How every storage cuts an array: threads take whole runs of kernels::kRun elements, a run goes
// through a kernel, temporaries live on the stack. Private to this folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/numeric/bitpack.h"
#include "ulp/numeric/kernels.h"

namespace ulp {

// Runs per thread below which another thread does not pay.
inline constexpr size_t kGrainRuns = 8;
// Outputs from this size on are written past the cache: nothing of them would be there when they
// are read.
inline constexpr size_t kStreamBytes = size_t{64} << 20;

// body(begin, n) for every run of [0, total), on all threads. Runs start at multiples of kRun.
template <typename Body>
void for_runs(size_t total, const Body& body) {
  using kernels::kRun;
  parallel_for(total, kGrainRuns * kRun, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kRun) body(at, std::min(kRun, end - at));
  });
}

// The same for encoders: body returns the run's statistics, which are merged.
template <typename Body>
EncodeStats encode_runs(std::span<const float> in, ExponentHistogram* histogram, const Body& body) {
  using kernels::kRun;
  EncodeStats stats;
  std::mutex merging;
  parallel_for(in.size(), kGrainRuns * kRun, [&](size_t begin, size_t end) {
    EncodeStats mine;
    ExponentHistogram my_histogram;
    for (size_t at = begin; at < end; at += kRun) {
      const size_t n = std::min(kRun, end - at);
      mine.merge(body(at, n));
      for (size_t i = at; histogram && i < at + n; ++i) {
        uint32_t x;
        std::memcpy(&x, in.data() + i, sizeof x);
        my_histogram.add(x);
      }
    }
    const std::lock_guard lock(merging);
    stats.merge(mine);
    if (histogram) histogram->merge(my_histogram);
  });
  return stats;
}

inline void check_elements(uint64_t first, size_t n) {
  if (first > kMaxRandomElements || n > kMaxRandomElements - first) {
    fail("codec", "a tensor has at most 2^50 elements, got {} from element {} on", n, first);
  }
}

// The width of codes that a kernel can write in place, else 0: those go through words and are
// packed.
inline int conv_simt_bytes(int bits) { return bits == 8 || bits == 16 || bits == 32 ? bits / 8 : 0; }

// One run (n <= kRun) to packed codes.
inline EncodeStats encode_packed(const CodecSpec& spec, const Rounding& rounding, const float* in, size_t n,
                                 uint64_t first, uint8_t* out) {
  using kernels::kRun;
  const kernels::Table& table = kernels::table();
  alignas(64) uint32_t random[kRun];
  if (rounding.mode == Round::stochastic) table.random_words(rounding.key, first, n, random);
  const int bits = spec.sign_shift + 1;
  if (const int bytes = conv_simt_bytes(bits)) {
    return kernels::encode_run(table, {&spec, rounding.mode, in, n, out, bytes, random});
  }
  alignas(64) uint32_t codes[kRun];
  const EncodeStats stats = kernels::encode_run(table, {&spec, rounding.mode, in, n, codes, 4, random});
  pack_bits(codes, n, bits, out);
  return stats;
}

// One run of packed codes back; any n where the width is direct.
inline void decode_packed(const CodecSpec& spec, const uint8_t* in, size_t n, float* out, bool stream) {
  using kernels::kRun;
  const int bits = spec.sign_shift + 1;
  if (const int bytes = conv_simt_bytes(bits))
    return kernels::table().decode({&spec, in, bytes, out, n, stream});
  alignas(64) uint32_t codes[kRun];
  unpack_bits(in, n, bits, codes);
  kernels::table().decode({&spec, codes, 4, out, n, stream});
}

}  // namespace ulp
