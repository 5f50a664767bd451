// The numbers that change from step to step, in the memory of the backend: kernels read them there,
// so a recorded sequence of kernels stays valid.
#pragma once

#include <cstdint>
#include <limits>

#include "ulp/optim/update.h"

namespace ulp {

struct StepState {
  uint64_t seed = 0;
  uint32_t step = 0;         // counted from 0: it names the random words
  uint16_t micro_batch = 0;  // within the step; sums start anew at 0
  float loss_scale = 1;
  // Not 0: updates leave everything as it is. On a device that is not the host, where a judge may
  // set it among them; on the host updates that are not to be are not run, and kernels ignore it.
  uint32_t skip = 0;
  // What the optimizer needs; grad_scale takes the loss scale out again.
  UpdateScalars update = {0, 1, std::numeric_limits<float>::infinity(), 0, 1};
};

}  // namespace ulp
