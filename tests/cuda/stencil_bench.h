// What checks of convolutions on a GPU share: device memory with a guard, time, tensors of codes at random.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/numeric/format.h"
#include "ulp/numeric/quick.h"

namespace ulp::cuda {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) fail("cuda", "{}", cudaGetErrorString(error));
}

// Device memory with a guard behind it.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&at_, bytes + kGuard));
    soil(0xA5);
  }
  template <typename T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    check(cudaMemcpy(at_, values.data(), bytes_, cudaMemcpyHostToDevice));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(at_); }

  template <typename T = uint8_t>
  T* as() const {
    return static_cast<T*>(at_);
  }
  void soil(int byte) {
    check(cudaMemset(at_, byte, bytes_));
    check(cudaMemset(static_cast<uint8_t*>(at_) + bytes_, 0xA5, kGuard));
  }
  template <typename T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    check(cudaMemcpy(values.data(), at_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }
  bool guard_intact() const {
    std::vector<uint8_t> guard(kGuard);
    check(cudaMemcpy(guard.data(), static_cast<uint8_t*>(at_) + bytes_, kGuard, cudaMemcpyDeviceToHost));
    return std::all_of(guard.begin(), guard.end(), [](uint8_t byte) { return byte == 0xA5; });
  }

 private:
  static constexpr size_t kGuard = 1024;
  void* at_ = nullptr;
  size_t bytes_;
};

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

struct Format {
  std::string_view name;

  QuickCodec codec() const {
    const FloatFormat format = parse_format(name);
    return make_quick(make_spec(format, format.has_inf() ? Overflow::infinity : Overflow::saturate));
  }
  uint32_t bits() const { return static_cast<uint32_t>(parse_format(name).bits()); }
};

// Codes of ordinary numbers, some small and some 0; specials only where there are none.
inline std::vector<uint8_t> random_codes(const Format& format, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t bytes = format.bits() / 8;
  const QuickCodec codec = format.codec();
  // Large tensors repeat themselves.
  std::vector<uint8_t> codes(count * bytes);
  const size_t own = std::min(codes.size(), size_t{1} << 20);
  for (size_t i = 0; i < own; i += bytes) {
    const auto word = static_cast<uint32_t>(random());
    const float unit = std::uniform_real_distribution<float>(-1, 1)(random);
    const float value = word % 16 == 0 ? 0 : std::ldexp(unit, -static_cast<int>(word / 16 % 8));
    const uint32_t code = encode_even(codec, float_bits(value)).code;
    std::memcpy(&codes[i], &code, bytes);
  }
  for (size_t i = own; i < codes.size(); i += own) {
    std::memcpy(&codes[i], codes.data(), std::min(own, codes.size() - i));
  }
  return codes;
}

inline std::vector<float> decoded(const Format& format, const std::vector<uint8_t>& codes) {
  const uint32_t bytes = format.bits() / 8;
  const QuickCodec codec = format.codec();
  std::vector<float> values(codes.size() / bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t code = 0;
    std::memcpy(&code, &codes[i * bytes], bytes);
    values[i] = bits_float(decode_quick(codec, code));
  }
  return values;
}

inline std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// One case of `every` is checked: under a sanitizer, all of them take hours.
inline uint64_t every = 1;
inline bool taken() {
  static uint64_t seen = 0;
  return seen++ % every == 0;
}

// The number after "--every" among a program's arguments.
inline void read_every(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string_view(argv[i]) == "--every")
      every = std::max(std::strtoull(argv[i + 1], nullptr, 10), 1ULL);
  }
}

}  // namespace ulp::cuda
