// What the kernel says about this process's memory.
#pragma once

#include <cstddef>

namespace ulp {

// Resident bytes now. 0 where the kernel does not tell.
size_t resident_bytes();

// The most that was resident since the last call of forget_peak, or since the start where the kernel does not let it be
// forgotten (then this says false).
size_t peak_resident_bytes();
bool forget_peak_resident();

}  // namespace ulp
