// What the benchmarks of training steps share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "ulp/numeric/simd.h"

namespace ulp {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The vector unit that ULP_SIMD names, if it does.
inline void use_simd_of_environment() {
  if (const char* simd = std::getenv("ULP_SIMD"); simd != nullptr) use_simd(simd);
}

// main of a benchmark that takes [MODEL [BATCH [CHANNELS]]].
inline int run_bench(int argc, char** argv, void (*measure)(const std::string&, int64_t, int64_t)) {
  try {
    use_simd_of_environment();
    measure(argc > 1 ? argv[1] : "resnet20", argc > 2 ? std::atoll(argv[2]) : 128,
            argc > 3 ? std::atoll(argv[3]) : 3);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
  return 0;
}

}  // namespace ulp
