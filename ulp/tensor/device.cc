#include "ulp/tensor/device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/base/parallel.h"
#include "ulp/base/process.h"

namespace ulp {
namespace {

// From this size on a piece is a mapping of its own: it costs no resident memory before it is
// written, and giving it back lowers the resident memory.
constexpr size_t kMapFrom = size_t{1} << 20;

class Repeated : public Recording {
 public:
  explicit Repeated(std::function<void(Stream)> work) : work_(std::move(work)) {}
  void launch() override { work_(nullptr); }

 private:
  std::function<void(Stream)> work_;
};

class HostDevice : public Device {
 public:
  std::string_view name() const override { return "host"; }
  bool on_host() const override { return true; }

  uint8_t* allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes >= kMapFrom) {
      data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) data = nullptr;
    } else {
      data = std::aligned_alloc(kMemoryAlignment, bytes);
      if (data != nullptr) std::memset(data, 0, bytes);
    }
    if (data == nullptr) fail("host", "no {} bytes: {}", bytes, std::strerror(errno));
    return static_cast<uint8_t*>(data);
  }
  size_t free_bytes() const override { return memory_left().least(); }
  void release(uint8_t* data, size_t bytes) override {
    if (bytes >= kMapFrom) {
      munmap(data, bytes);
    } else {
      std::free(data);
    }
  }
  uint8_t* allocate_staging(size_t bytes) override { return allocate(bytes); }
  void release_staging(uint8_t* data, size_t bytes) override { release(data, bytes); }

  void upload(uint8_t* to, const void* from, size_t bytes) override {
    copy(to, static_cast<const uint8_t*>(from), bytes);
  }
  void download(void* to, const uint8_t* from, size_t bytes) override {
    copy(static_cast<uint8_t*>(to), from, bytes);
  }
  void copy(uint8_t* to, const uint8_t* from, size_t bytes) override {
    parallel_for(bytes, size_t{1} << 20,
                 [&](size_t begin, size_t end) { std::memcpy(to + begin, from + begin, end - begin); });
  }
  void copy_async(void* to, const void* from, size_t bytes, Stream /*stream*/) override {
    std::memcpy(to, from, bytes);
  }
  void clear_async(uint8_t* to, size_t bytes, Stream /*stream*/) override { std::memset(to, 0, bytes); }

  std::unique_ptr<Recording> record(const std::function<void(Stream)>& work) override {
    return std::make_unique<Repeated>(work);
  }
  void wait() override {}
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace ulp
