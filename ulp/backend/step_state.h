// The numbers that change from step to step. Kernels read them from the backend's memory, so a
// recorded CUDA graph stays valid.
#pragma once

#include <cstdint>
#include <limits>

#include "ulp/optim/update.h"

namespace ulp {

struct StepState {
  uint64_t seed = 0;
  uint32_t step = 0;         // counted from 0: it names the random words
  uint32_t epoch = 0;        // names the random words of batches made from resident data
  uint16_t micro_batch = 0;  // within the step; sums start anew at 0
  float loss_scale = 1;
  // Not 0: updates change nothing. On a device the found_inf task sets it. On the host skipped
  // updates are not run, and kernels ignore it.
  uint32_t skip = 0;
  // What the optimizer needs; grad_scale takes the loss scale out again.
  UpdateScalars update = {0, 1, std::numeric_limits<float>::infinity(), 0, 1};
};

}  // namespace ulp
