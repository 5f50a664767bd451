#include "ulp/tensor/memory.h"

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp {
Block& Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  if (memory_ != nullptr) memory_->release(data_, bytes_);
  memory_ = std::exchange(other.memory_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Block::~Block() {
  if (memory_ != nullptr) memory_->release(data_, bytes_);
}

Device& Block::device() const { return memory_ == nullptr ? host_device() : memory_->device(); }

Block Memory::allocate(size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  const size_t rounded = aligned_bytes(bytes);
  try {
    block.data_ = device_.allocate(rounded);
  } catch (const Error& error) {
    fail("memory", "{} bytes are needed beside the {} in use, and there are not so many ({})", rounded,
         in_use_, error.message());
  }
  block.memory_ = this;
  block.bytes_ = rounded;
  in_use_ += rounded;
  peak_ = std::max(peak_, in_use_);
  return block;
}

void Memory::release(uint8_t* data, size_t bytes) {
  in_use_ -= bytes;
  device_.release(data, bytes);
}

}  // namespace ulp
