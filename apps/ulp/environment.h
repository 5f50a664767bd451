// Every environment variable that the program reads. Nothing below apps/ reads one.
#pragma once

#include <cstddef>
#include <string>

namespace ulp {

// Applies what concerns the whole process: ULP_KERNELS (see kernels_of_environment), ULP_DATA
// (where data sets lie) and OMP_NUM_THREADS.
void apply_environment();
// The same for ULP_SIMD, the codecs' vector unit, which only commands that compute need. Throws an
// Error for a name that this machine does not have.
void apply_simd_of_environment();

// Bounds how long OpenMP's threads spin before they sleep, at every barrier of ours and of oneDNN.
// libgomp spins for milliseconds: where another process runs on one of the cores, a thread that
// spins keeps the other core from the thread it waits for, and a step takes a hundred times as
// long. libgomp reads its variables when it is loaded, before main. So this sets GOMP_SPINCOUNT and
// starts the program anew, once. It does nothing if GOMP_SPINCOUNT or OMP_WAIT_POLICY is set. Call
// it first in main.
void bound_spinning(char** argv);

// ULP_KERNELS: the kernels that are forced where the options name none; "" where it is not set.
std::string kernels_of_environment();

// COLUMNS, or else how wide the terminal is that standard output goes to; 0: it is none.
size_t output_columns();
// Whether LC_ALL, LC_CTYPE or LANG, the first that is set, names UTF-8.
bool output_is_utf8();

}  // namespace ulp
