// The inner loops of the end of a step, compiled for every vector unit.
#pragma once

#include <cstddef>

#include "ulp/optim/optimizer.h"

namespace ulp::step {

// One step of n elements, in place. `state` are as many arrays as the optimizer has states.
void advance(const Optimizer& optimizer, const UpdateScalars& scalars, size_t n, const float* grad,
             float* weight, float* const* state);

// The sum of squares, in an order that depends on n alone.
double squares(const float* x, size_t n);

}  // namespace ulp::step
