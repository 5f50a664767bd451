// The kernels of the CUDA backend, run on the CPU by emulate.h: for tests.
#pragma once

#include "ulp/backend/kernel.h"

namespace ulp {

const Backend& emulated_backend();

}  // namespace ulp
