// The peak rates of this machine's cores, with the current number of threads.
#pragma once

#include "ulp/backend/ceilings.h"

namespace ulp {

// The best of several rounds each: takes 256 MiB and about a second.
Ceilings cpu_ceilings();

}  // namespace ulp
