// What checks of convolutions on a GPU share: memory, tensors of codes, time, a choice of cases.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <string_view>
#include <system_error>

#include "tests/cuda/codes.h"
#include "tests/cuda/memory.h"

namespace ulp::cuda {

inline double milliseconds(const std::function<void()>& run) {
  constexpr int kTimes = 20;
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  for (int i = 0; i < 3; ++i) run();
  check(cudaEventRecord(start));
  for (int i = 0; i < kTimes; ++i) run();
  check(cudaEventRecord(stop));
  check(cudaEventSynchronize(stop));
  float ms = 0;
  check(cudaEventElapsedTime(&ms, start, stop));
  check(cudaEventDestroy(start));
  check(cudaEventDestroy(stop));
  return ms / kTimes;
}

// One case of `every` is checked: under a sanitizer, all of them take hours.
inline uint64_t every = 1;
inline bool taken() {
  static uint64_t seen = 0;
  return seen++ % every == 0;
}

inline bool has_flag(int argc, char** argv, std::string_view flag) {
  return std::find(argv + 1, argv + argc, flag) != argv + argc;
}
// The number after "--every" among a program's arguments.
inline void read_every(int argc, char** argv) {
  char** const found = std::find(argv + 1, argv + argc, std::string_view("--every"));
  if (found == argv + argc) return;
  const std::string_view text = found + 1 == argv + argc ? "" : found[1];
  const auto read = std::from_chars(text.data(), text.data() + text.size(), every);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || every == 0)
    fail("check", "--every wants a number from 1, not '{}'", text);
}

}  // namespace ulp::cuda
