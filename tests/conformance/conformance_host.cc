// The backend of any machine.
#include "tests/conformance/conformance.h"
#include "ulp/backend/cpu/cpu.h"

namespace ulp::conformance {

std::span<const BackendOf> tested_backends() {
  static constexpr BackendOf kBackends[] = {cpu_backend};
  return kBackends;
}

}  // namespace ulp::conformance
