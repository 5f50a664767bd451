// The CPU backend: oneDNN for products, fused pipelines for elementwise operators and reductions, kernels over
// examples for the rest, and the reference where none of them takes a problem.
#pragma once

#include "ulp/backend/kernel.h"

namespace ulp {

const Backend& cpu_backend();

}  // namespace ulp
