// The CPU backend: oneDNN for products, fused loops for elementwise operators and reductions,
// kernels over examples for the rest, and the reference for what none of them takes.
#pragma once

#include "ulp/backend/kernel.h"

namespace ulp {

const Backend& cpu_backend();

}  // namespace ulp
