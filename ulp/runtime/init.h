// Initial weights: pure functions of the seed and the tensor's number, the same on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "ulp/graph/graph.h"

namespace ulp {

void fill_initial(const Init& init, uint64_t seed, uint32_t tensor, std::span<float> out);

}  // namespace ulp
