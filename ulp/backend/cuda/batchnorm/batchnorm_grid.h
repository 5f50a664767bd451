// Batch norm's reduction and the pass that uses it in one launch. A block keeps the codes that it sums, waits until all blocks of its
// channels have given their sums, joins these by itself and goes on with what it kept: the second pass reads nothing again. The same bits, sums and range
// events as the two launches of batchnorm.h, since all is added in the same order.
//
// All blocks must be on the GPU at once, so there are no more of them than it has processors, which bounds the tensors that are taken. Other kernels beside
// it only delay it, as they wait for nobody. Two of these may not run at a time: they are for one stream.
#pragma once

#include <string_view>

#include "ulp/backend/cuda/elementwise/fused_elementwise.h"

namespace ulp::cuda {

// Launches what two calls ask for, and answers true; or, where formats, shapes or tensors are not its own, does nothing and answers false. only_asks:
// nothing is launched in any case; then addresses only say which tensors are the same.
using JoinedLaunch = bool (*)(const FusedCall& first, const FusedCall& second, bool only_asks, Stream stream);
// By the texts of the patterns; null where there is none.
JoinedLaunch find_joined(std::string_view first, std::string_view second);

}  // namespace ulp::cuda
