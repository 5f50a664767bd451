#include "ulp/backend/cuda/library/cudnn_descriptor.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "ulp/backend/cuda/runtime/current.h"
#include "ulp/backend/cuda/runtime/runtime.h"
#include "ulp/base/error.h"

namespace ulp::cuda {
namespace {

// Handles of threads that have ended, by device. Never destroyed: a thread may end after main.
struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<cudnnHandle_t>> free;
};

Pool& pool() {
  static Pool* const pool = new Pool;
  return *pool;
}

struct Lease {
  int device = -1;
  cudnnHandle_t handle = nullptr;

  void give_back() {
    if (handle == nullptr) return;
    const std::lock_guard lock(pool().mutex);
    pool().free[device].push_back(std::exchange(handle, nullptr));
  }
  ~Lease() { give_back(); }
};

}  // namespace

std::string cudnn_message(cudnnStatus_t status) {
  std::array<char, 1024> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  text.back() = '\0';
  std::replace(text.begin(), text.end(), '\n', ' ');  // an error is one line
  return text[0] == '\0' ? cudnnGetErrorString(status)
                         : fmt::format("{}: {}", cudnnGetErrorString(status), text.data());
}

void check_cudnn(cudnnStatus_t status, std::string_view doing) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    fail("cuda", "cuDNN: {}: no memory left on the GPU, {}", doing, memory_left());
  fail("cuda", "cuDNN: {}: {}", doing, cudnn_message(status));
}

cudnnHandle_t cudnn_handle() {
  thread_local Lease lease;
  const int device = current_device();
  if (lease.handle != nullptr && lease.device == device) return lease.handle;
  lease.give_back();
  lease.device = device;
  {
    const std::lock_guard lock(pool().mutex);
    std::vector<cudnnHandle_t>& free = pool().free[device];
    if (!free.empty()) {
      lease.handle = free.back();
      free.pop_back();
      return lease.handle;
    }
  }
  check_cudnn(cudnnCreate(&lease.handle), "making a handle");
  return lease.handle;
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &raw_), "making a descriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) cudnnBackendDestroyDescriptor(raw_);
}

Descriptor& Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                            const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) {
    fail("cuda", "cuDNN: setting attribute {}: {}", static_cast<int>(name), cudnn_message(status));
  }
  return *this;
}

Descriptor& Descriptor::seal() {
  check_cudnn(try_seal(), "finalizing a descriptor");
  return *this;
}

cudnnStatus_t Descriptor::try_seal() { return cudnnBackendFinalize(raw_); }

bool Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
                     void* values, int64_t* count) const {
  int64_t there = 0;
  const cudnnStatus_t status = cudnnBackendGetAttribute(raw_, name, type, room, &there, values);
  if (count != nullptr) *count = there;
  return status == CUDNN_STATUS_SUCCESS;
}

}  // namespace ulp::cuda
