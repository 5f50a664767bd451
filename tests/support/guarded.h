// What kernels are tried on: memory that shows what was written beside it, here and on a device
// that is not the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ulp/backend/kernel.h"
#include "ulp/tensor/memory.h"

namespace ulp::conformance {

// Memory between guards, aligned, and its size.
class Guarded {
 public:
  Guarded(size_t size, uint8_t fill) : memory_(size + 2 * kGuard + kMemoryAlignment, fill), size_(size) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = memory_.data() + (kMemoryAlignment - address % kMemoryAlignment) % kMemoryAlignment + kGuard;
    std::fill_n(data_ - kGuard, kGuard, kMark);
    std::fill_n(data_ + size_, kGuard, kMark);
  }
  uint8_t* data() const { return data_; }
  // With the guards; a device that is not the host has the same bytes.
  std::span<uint8_t> all() const { return {data_ - kGuard, size_ + 2 * kGuard}; }
  uint8_t* data_in(uint8_t* there) const { return there + kGuard; }
  bool whole() const {
    const auto marked = [](uint8_t byte) { return byte == kMark; };
    return std::all_of(data_ - kGuard, data_, marked) &&
           std::all_of(data_ + size_, data_ + size_ + kGuard, marked);
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr uint8_t kMark = 0xA5;
  std::vector<uint8_t> memory_;
  size_t size_;
  uint8_t* data_;
};

// What a kernel works on that does not work on the host: copies of what is here, taken there and
// back.
class There {
 public:
  explicit There(Device& device) : device_(device), memory_(device) {}

  uint8_t* take(const Guarded& here) {
    const auto [at, fresh] = mirrored_.try_emplace(&here);
    if (fresh) at->second = take(here.all().data(), here.all().size());
    return here.data_in(at->second);
  }
  uint8_t* take(const void* here, size_t bytes) {
    blocks_.push_back(memory_.allocate(bytes));
    device_.upload(blocks_.back().data(), here, bytes);
    return blocks_.back().data();
  }
  // Brings back what has guards.
  void bring() {
    for (const auto& [here, there] : mirrored_)
      device_.download(here->all().data(), there, here->all().size());
  }
  void run(Task& task, RunContext& run) {
    const auto recording = device_.record([&](Stream stream) {
      run.stream = stream;
      task.run(run);
    });
    recording->launch();
    device_.wait();
  }

 private:
  Device& device_;
  Memory memory_;
  std::vector<Block> blocks_;
  std::map<const Guarded*, uint8_t*> mirrored_;
};

}  // namespace ulp::conformance
