// Gradients of weights from codes (conv_wgrad.h) on a real GPU: sums against plain loops in double
// (|err| <= 2 (n + 8) 2^-23 sum |a| |b|), the same bits from garbage in the workspace, nothing
// written past a buffer; and speed.
#pragma once

namespace ulp::cuda {

// Prints a line for each; the number of failures.
int check_grads();
// * is what plans take.
void time_grads();

}  // namespace ulp::cuda
