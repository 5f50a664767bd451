// The reference backend: plain loops on one thread, the definition of correct that other kernels
// are held to.
//
// Every input is decoded to fp32, a plain function computes, every output is encoded. Elementwise
// operators are those of ulp/backend/elementwise.h, to the bit. Reductions and products add up in
// double and are rounded to fp32 once, so a kernel that adds in fp32, in whatever order, differs
// from them by its own error alone. With a narrow accumulator products add up in that format, one
// term after another, and a kernel must give the same bits.
#pragma once

#include <span>

#include "ulp/backend/kernel.h"

namespace ulp {

const Backend& reference_backend();

// The kernels alone, all named "reference", for the end of another backend's list.
std::span<const KernelDef> reference_kernels();

}  // namespace ulp
