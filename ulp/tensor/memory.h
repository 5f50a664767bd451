// The memory that tensors live in. Every byte of weights, optimizer state, activations, gradients
// and workspaces is asked for here, on whatever device, so the high-water mark is what training
// really took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ulp/tensor/device.h"

namespace ulp {

class Memory;

// A piece of memory, aligned to kMemoryAlignment, given back when it goes out of scope.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  ~Block();

  // On a device that is not the host it is only an address: see device().
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device& device() const;

 private:
  friend class Memory;
  Memory* memory_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Bytes that a request takes: rounded up to the alignment, so that a plan can add them up
// beforehand.
constexpr size_t aligned_bytes(size_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

class Memory {
 public:
  explicit Memory(Device& device = host_device()) : device_(device) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Zeros. Throws an Error that names the bytes if there are not so many.
  Block allocate(size_t bytes);

  Device& device() const { return device_; }
  size_t in_use() const { return in_use_; }
  size_t peak() const { return peak_; }

 private:
  friend class Block;
  void release(uint8_t* data, size_t bytes);

  Device& device_;
  size_t in_use_ = 0, peak_ = 0;
};

}  // namespace ulp
