// The backends of a machine without a GPU; the kernels for one are emulated.
#include "tests/conformance.h"
#include "ulp/backend/cpu/cpu.h"
#include "ulp/backend/emulated/emulated.h"

namespace ulp::conformance {

std::span<const BackendOf> tested_backends() {
  static constexpr BackendOf kBackends[] = {cpu_backend, emulated_backend};
  return kBackends;
}

}  // namespace ulp::conformance
