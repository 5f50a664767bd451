// Decides on the device whether a step's gradients are usable, by the rule of
// ulp/backend/found_inf.h. An unusable step is skipped and leaves the parameters unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ulp/backend/step_state.h"
#include "ulp/numeric/stats.h"
#include "ulp/tensor/device.h"

namespace ulp {
struct PlanContext;
struct TensorId;
class Task;
}  // namespace ulp

namespace ulp::cuda {

inline constexpr uint32_t kFoundInfTensors = 4096;
struct FoundInfBatch {
  StepState* state = nullptr;
  const EncodeStats* stats = nullptr;
  const float* sums = nullptr;
  bool first = true;  // later batches only set the flag, never clear it
  uint32_t count = 0;
  int32_t tensors[kFoundInfTensors] = {};
};
void launch_found_inf(const FoundInfBatch& batch, Stream stream);

// Sets StepState::skip to 1 if the gradients have overflowed, with the first of the fp32 sums as
// the loss; else to 0.
std::unique_ptr<Task> make_found_inf(const PlanContext& plan, std::span<const TensorId> gradients,
                                     TensorId sums);

}  // namespace ulp::cuda
