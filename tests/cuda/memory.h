// Device memory for programs that check kernels on a real GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulp/base/error.h"

namespace ulp::cuda {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) fail("cuda", "{}", cudaGetErrorString(error));
}

// With a guard behind it, and garbage in it, so that nothing relies on what was there.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&at_, bytes + kGuard));
    check(cudaMemset(at_, kUntouched, bytes + kGuard));
  }
  template <typename T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    check(cudaMemcpy(at_, values.data(), bytes_, cudaMemcpyHostToDevice));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(at_); }

  void* get() const { return at_; }
  template <typename T = uint8_t>
  T* as() const {
    return static_cast<T*>(at_);
  }
  float* floats() const { return as<float>(); }
  size_t bytes() const { return bytes_; }

  void soil(int byte) { check(cudaMemset(at_, byte, bytes_)); }  // but for the guard
  template <typename T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    check(cudaMemcpy(values.data(), at_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }
  bool guard_intact() const {
    std::vector<uint8_t> guard(kGuard);
    check(cudaMemcpy(guard.data(), as() + bytes_, kGuard, cudaMemcpyDeviceToHost));
    return std::all_of(guard.begin(), guard.end(), [](uint8_t byte) { return byte == kUntouched; });
  }

 private:
  static constexpr size_t kGuard = 1024;
  static constexpr uint8_t kUntouched = 0xA5;
  void* at_ = nullptr;
  size_t bytes_;
};

}  // namespace ulp::cuda
