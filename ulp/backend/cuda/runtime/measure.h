// The GPU's peak rates, the time of a plan's steps on it, and how much of its memory is in use.
#pragma once

#include <cstddef>
#include <memory>

#include "ulp/backend/ceilings.h"
#include "ulp/backend/plan_clock.h"

namespace ulp {

Ceilings cuda_ceilings();
std::unique_ptr<PlanClock> cuda_clock();
// Memory in use on the whole GPU, as it reports: by this process with CUDA and the libraries, and
// by any other process.
size_t cuda_used_bytes();

}  // namespace ulp
