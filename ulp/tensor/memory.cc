#include "ulp/tensor/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp {
namespace {

// From this size on a piece is a mapping of its own, so that giving it back lowers the resident memory.
constexpr size_t kMapFrom = size_t{1} << 20;

uint8_t* obtain(size_t bytes) {
  if (bytes >= kMapFrom) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? nullptr : static_cast<uint8_t*>(data);
  }
  void* data = std::aligned_alloc(kMemoryAlignment, bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return static_cast<uint8_t*>(data);
}

}  // namespace

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

Block Memory::allocate(size_t bytes) {
  Block block;
  if (bytes == 0) return block;
  const size_t rounded = aligned_bytes(bytes);
  block.data_ = obtain(rounded);
  if (block.data_ == nullptr) {
    fail("memory", "{} bytes are needed beside the {} in use, and there are not so many", rounded, in_use_);
  }
  block.memory_ = this;
  block.bytes_ = rounded;
  in_use_ += rounded;
  peak_ = std::max(peak_, in_use_);
  return block;
}

void Memory::release(uint8_t* data, size_t bytes) {
  in_use_ -= bytes;
  if (bytes >= kMapFrom) {
    munmap(data, bytes);
  } else {
    std::free(data);
  }
}

}  // namespace ulp
