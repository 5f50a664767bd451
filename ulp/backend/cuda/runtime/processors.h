// The number of multiprocessors that most grids are sized for, whatever the GPU has. Sums that are
// split accordingly thus have the same bits on every GPU; a GPU with another number only runs them
// less evenly.
#pragma once

#include <cstdint>

namespace ulp::cuda {

inline constexpr uint32_t kProcessors = 132;  // of an H100 or H200

}  // namespace ulp::cuda
