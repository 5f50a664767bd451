// Where tensors live, and how bytes and work get there. The engine knows no other way to them: what
// lies in the memory of a device that is not the host is never read or written here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

struct CUstream_st;  // a CUDA stream, seen from outside

namespace ulp {

using Stream = CUstream_st*;

inline constexpr size_t kMemoryAlignment = 64;

// Work that was recorded once and can be done again and again: the same kernels on the same memory.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  // Its memory can be read and written here.
  virtual bool on_host() const = 0;

  // Zeros, aligned to kMemoryAlignment. Throws an Error that says how many bytes are needed and how
  // many there are.
  virtual uint8_t* allocate(size_t bytes) = 0;
  virtual void release(uint8_t* data, size_t bytes) = 0;
  // How many bytes could be asked for now; a device that cannot tell says that all could.
  virtual size_t free_bytes() const { return SIZE_MAX; }
  // Host memory that the device copies from and to while it works; what is in it is not defined.
  virtual uint8_t* allocate_staging(size_t bytes) = 0;
  virtual void release_staging(uint8_t* data, size_t bytes) = 0;

  // Done when they return, after all work before them.
  virtual void upload(uint8_t* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const uint8_t* from, size_t bytes) = 0;
  virtual void copy(uint8_t* to, const uint8_t* from, size_t bytes) = 0;

  // In the order of the stream; to be called within record(). A copy goes in any direction; on the
  // host's side it is of staging memory.
  virtual void copy_async(void* to, const void* from, size_t bytes, Stream stream) = 0;
  virtual void clear_async(uint8_t* to, size_t bytes, Stream stream) = 0;  // zeros

  // Within record(): a stream beside this one, whose work begins when what is in this one is done,
  // and after what it was given before; a mark behind what a stream has been given; and that a
  // stream goes on only when what is before a mark is done, as every mark must be waited for. A
  // device that does one thing at a time has no other stream.
  virtual Stream side_stream(Stream stream) { return stream; }
  virtual std::shared_ptr<void> mark(Stream /*stream*/) { return nullptr; }
  virtual void wait_for(const std::shared_ptr<void>& /*mark*/, Stream /*stream*/) {}

  // Calls `work` once, or once a launch: what it refers to must live as long as the recording.
  virtual std::unique_ptr<Recording> record(const std::function<void(Stream)>& work) = 0;
  // Until all launched work is done.
  virtual void wait() = 0;
};

// Plain memory. A recording calls its work, with a null stream, whenever it is launched.
Device& host_device();

}  // namespace ulp
