// How many multiprocessors most grids are made for, whatever the GPU has: sums that are cut into pieces by it have the same bits on
// every GPU. One with another number only runs them less evenly.
#pragma once

#include <cstdint>

namespace ulp::cuda {

inline constexpr uint32_t kProcessors = 132;  // of an H100 or H200

}  // namespace ulp::cuda
