// The backend of a machine with a GPU.
#include "tests/conformance/conformance.h"
#include "ulp/backend/cuda/cuda.h"

namespace ulp::conformance {

std::span<const BackendOf> tested_backends() {
  static constexpr BackendOf kBackends[] = {cuda_backend};
  return kBackends;
}

}  // namespace ulp::conformance
