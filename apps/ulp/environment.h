// Every environment variable that the program reads. Nothing below apps/ reads one.
#pragma once

#include <string>

namespace ulp {

// Applies what concerns the whole process: ULP_SIMD (the codecs' vector unit), ULP_DATA (where data sets lie) and
// OMP_NUM_THREADS. Throws an Error for a value that makes no sense.
void apply_environment();

// ULP_KERNELS: the kernels that are forced where the options name none; "" where it is not set.
std::string kernels_of_environment();

}  // namespace ulp
