// Every environment variable that the program reads. Nothing below apps/ reads one.
#pragma once

#include <string>

namespace ulp {

// Applies what concerns the whole process: ULP_KERNELS (see kernels_of_environment), ULP_DATA (where data sets lie)
// and OMP_NUM_THREADS.
void apply_environment();
// The same for ULP_SIMD, the codecs' vector unit, which only commands that compute need. Throws an Error for a name
// that this machine does not have.
void apply_simd_of_environment();

// ULP_KERNELS: the kernels that are forced where the options name none; "" where it is not set.
std::string kernels_of_environment();

}  // namespace ulp
