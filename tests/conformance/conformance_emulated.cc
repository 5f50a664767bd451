// The kernels for a GPU on a machine without one.
#include "tests/conformance/conformance.h"
#include "ulp/backend/emulated/emulated.h"

namespace ulp::conformance {

std::span<const BackendOf> tested_backends() {
  static constexpr BackendOf kBackends[] = {emulated_backend};
  return kBackends;
}

}  // namespace ulp::conformance
