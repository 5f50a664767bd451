// cuDNN's opaque descriptors as values (set, finalised, destroyed), and its handles.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ulp::cuda {

// cuDNN's text for a status and for the last error on this thread.
std::string cudnn_message(cudnnStatus_t status);
// Throws Error unless the status is success.
void check_cudnn(cudnnStatus_t status, std::string_view doing);

// This thread's handle for the current device. Making one is slow, and plans outlive the thread
// that compiled them: a thread that ends leaves its handle to the next, and none is ever destroyed.
cudnnHandle_t cudnn_handle();

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor();

  cudnnBackendDescriptor_t raw() const { return raw_; }

  template <typename T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, type_of<T>(), 1, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);

  // Finalises: nothing may be set afterwards, and only then may it be used. Throws Error if cuDNN
  // refuses.
  Descriptor& seal();
  cudnnStatus_t try_seal();

  // `count` is the number of values available; at most `room` are written. False if cuDNN cannot
  // tell.
  bool get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room, void* values,
           int64_t* count = nullptr) const;

 private:
  template <typename T>
  static constexpr cudnnBackendAttributeType_t type_of() {
    if constexpr (std::is_same_v<T, int64_t>)
      return CUDNN_TYPE_INT64;
    else if constexpr (std::is_same_v<T, float>)
      return CUDNN_TYPE_FLOAT;
    else if constexpr (std::is_same_v<T, bool>)
      return CUDNN_TYPE_BOOLEAN;
    else if constexpr (std::is_same_v<T, void*>)
      return CUDNN_TYPE_VOID_PTR;
    else if constexpr (std::is_same_v<T, cudnnDataType_t>)
      return CUDNN_TYPE_DATA_TYPE;
    else if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>)
      return CUDNN_TYPE_CONVOLUTION_MODE;
    else if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>)
      return CUDNN_TYPE_POINTWISE_MODE;
    else if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>)
      return CUDNN_TYPE_HEUR_MODE;
    else {
      static_assert(std::is_same_v<T, cudnnHandle_t>);
      return CUDNN_TYPE_HANDLE;
    }
  }

  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace ulp::cuda
