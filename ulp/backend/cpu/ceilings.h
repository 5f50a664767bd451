// The ceilings of this machine's cores, with as many threads as there are set.
#pragma once

#include "ulp/backend/ceilings.h"

namespace ulp {

// The best of several rounds each: takes 256 MiB and a second or so.
Ceilings cpu_ceilings();

}  // namespace ulp
