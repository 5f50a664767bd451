// Counters for tests of the loops that stand in for the kernel of conv_igemm.h.
#pragma once

#include "ulp/backend/cuda/igemm/conv_igemm.h"

namespace ulp::cuda {

// Tiles with taps that were written with this feed since the program began; a test may set it.
uint64_t& written_tiles(OperandFeed feed);

}  // namespace ulp::cuda
