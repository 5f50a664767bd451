// Batch norm's reduction and the pass that uses it in one launch, with a grid-wide barrier between
// them. A block keeps the codes that it sums in shared memory, waits until all blocks of its
// channels have written their sums, combines these itself and continues with the codes it kept: the
// second pass reads nothing again. Bits, sums and range events equal those of the two launches of
// batchnorm.h, because everything is added in the same order.
//
// All blocks must be resident at once, so there are no more of them than multiprocessors, which
// bounds the size of the tensors. Concurrent kernels of other kinds only delay it, as they wait for
// nobody. Two of these kernels must not run at the same time: use one stream.
#pragma once

#include <string_view>

#include "ulp/backend/cuda/elementwise/fused_elementwise.h"

namespace ulp::cuda {

// Launches both calls as one and returns true. If formats, shapes or tensors are not supported,
// does nothing and returns false. only_asks: never launches; addresses then only tell which tensors
// are the same.
using GridLaunch = bool (*)(const FusedCall& first, const FusedCall& second, bool only_asks, Stream stream);
// Looked up by the texts of the two patterns; null if there is none.
GridLaunch find_grid_launch(std::string_view first, std::string_view second);

}  // namespace ulp::cuda
