// Optimizer steps on many tensors at once. What kernels are told of the tensors travels as a kernel's parameters, since a recorded
// sequence of kernels has no other memory of its own; so one launch takes as many tensors as fit there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/step_state.h"
#include "ulp/numeric/nearest.h"
#include "ulp/optim/adagrad.h"
#include "ulp/optim/adam.h"
#include "ulp/optim/rule.h"
#include "ulp/optim/sgd.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The tensors of a step: what it changes, then its gradient.
inline constexpr int kWeight = 0, kState = 1, kCompensation = 3, kChanged = 4, kGradient = 4, kTensors = 5;

union OptimizerConstants {
  OptimizerConstants() : adamw() {}
  Sgd sgd;
  Adam adam;
  AdamW adamw;
  Adagrad adagrad;
};

// How a tensor is stored where kernels are made for it; `codes` are plain codes of 8 or 16 bits.
enum class Quick : uint8_t { none, fp32, bf16, bf16_random, bf16_16, bf16_8, codes };

// What parameters have in common.
struct UpdateRecipe {
  OptimizerConstants optimizer;
  float lr_factor = 1;
  uint8_t format[kTensors] = {};  // in the batch's table
  Round mode[kChanged] = {};      // how they are written; a compensated weight: its sum
  bool compensated = false;
  Quick gradient = Quick::none;
  Nearest near = {};  // of a compensated weight's format
};

struct UpdateTensor {
  uint8_t* data[kTensors] = {};
  uint64_t elements = 0;
  // Not null: nothing is counted as cancelled, and here is what each weight was, or NaN where there is no update to be
  // lost: for count_cancelled, once the new weights are stored.
  float* before = nullptr;
  uint32_t number[kChanged] = {};              // of the random words
  int32_t stats[kChanged] = {-1, -1, -1, -1};  // where range events are reported; below 0: nowhere
  int32_t updates = -1;
  uint32_t recipe = 0;
};

inline constexpr uint32_t kBatchTensors = 192, kBatchRecipes = 16, kBatchFormats = 24;

struct UpdateBatch {
  const StepState* state = nullptr;
  const float* norm = nullptr;  // of all gradients and the factor for it; null: none
  EncodeStats* stats = nullptr;
  UpdateCounts* updates = nullptr;
  uint32_t count = 0;
  uint32_t chunks = 0;      // of a block
  Nearest arithmetic = {};  // where it is narrow
  uint32_t first_block[kBatchTensors + 1] = {};
  UpdateTensor tensors[kBatchTensors] = {};
  UpdateRecipe recipes[kBatchRecipes] = {};
  StoredView formats[kBatchFormats] = {};  // but for where they lie
};

// Which kernel: of the optimizer, in which arithmetic, for which storages.
struct UpdateKernel {
  uint8_t optimizer = 0;  // as in Optimizer
  bool narrow = false;
  Quick weight = Quick::none, state = Quick::none;  // none: any

  bool operator==(const UpdateKernel&) const = default;
};
// Whether there are kernels for weights and state stored like this.
constexpr bool has_kernel(Quick weight, Quick state) {
  switch (weight) {
    case Quick::fp32:
    case Quick::bf16:
    case Quick::bf16_16:
      return state == Quick::fp32 || state == Quick::bf16;
    case Quick::bf16_random:
    case Quick::bf16_8:
      return state == Quick::bf16;
    default:
      return false;
  }
}

// Elements that a warp takes at a time, eight a lane: a block of scaled storage.
inline constexpr uint32_t kUpdateChunk = 256;

// Cuts the work into blocks. Once the tensors are there.
void set_blocks(UpdateBatch& batch);
// Where the step is not skipped: changes the tensors and reports.
void update(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream);
void update_any(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream);

// Counts the weights that are what they were.
void count_cancelled(const StoredView& weight, const float* before, const StepState* state,
                     UpdateCounts* counts, Stream stream);

}  // namespace ulp::cuda
