// What the GPU can do at best, how long the steps of a plan take on it, and how much of its memory is in use.
#pragma once

#include <cstddef>
#include <memory>

#include "ulp/backend/ceilings.h"
#include "ulp/backend/step_clock.h"

namespace ulp {

Ceilings cuda_ceilings();
std::unique_ptr<StepClock> cuda_clock();
// Of the whole GPU, as it says itself: this process's, with CUDA's and the libraries' own, and any other's.
size_t cuda_used_bytes();

}  // namespace ulp
