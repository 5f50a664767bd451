// Convolutions and matrix products by oneDNN, in true fp32.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

// Named "onednn".
std::span<const KernelDef> onednn_kernels();

}  // namespace ulp
