// Optimizer steps on many tensors at once. The tensor table is passed as kernel parameters, because
// a recorded sequence of kernels has no other memory of its own. So one launch takes as many
// tensors as fit there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/step_state.h"
#include "ulp/numeric/nearest.h"
#include "ulp/optim/list.h"
#include "ulp/optim/rule.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The tensors of a step: those it changes, then its gradient.
inline constexpr int kWeight = 0, kState = 1, kCompensation = 3, kChanged = 4, kGradient = 4, kTensors = 5;

// The bytes of one optimizer; the kernel knows which one it is.
struct OptimizerConstants {
  alignas(4) unsigned char bytes[Optimizers::kMostBytes] = {};
};

// Storages with specialised kernels; `codes` are plain codes of 8 or 16 bits.
enum class Quick : uint8_t { none, fp32, bf16, bf16_random, bf16_16, bf16_8, codes };

// The settings that parameters share.
struct UpdateRecipe {
  OptimizerConstants optimizer;
  float lr_factor = 1;
  uint8_t format[kTensors] = {};  // in the batch's table
  Round mode[kChanged] = {};      // how they are written; for a compensated weight: its sum
  bool compensated = false;
  Quick gradient = Quick::none;
  Nearest near = {};  // of a compensated weight's format
};

struct UpdateTensor {
  uint8_t* data[kTensors] = {};
  uint64_t elements = 0;  // of the weight
  // If not null: the gradient has `row_count` rows of the weight, and these are their numbers, then
  // -1. A row has `row_groups` groups of eight elements.
  const int32_t* rows = nullptr;
  uint32_t row_count = 0, row_groups = 0;
  // If not null: cancelled updates are not counted here. Instead each old weight is stored here, or
  // NaN if there is no update that could be lost; count_cancelled uses it once the new weights are
  // stored.
  float* before = nullptr;
  uint32_t number[kChanged] = {};              // of the random words
  int32_t stats[kChanged] = {-1, -1, -1, -1};  // where range events are reported; negative: nowhere
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
  Nearest arithmetic = {};  // if it is narrow
  uint32_t first_block[kBatchTensors + 1] = {};
  UpdateTensor tensors[kBatchTensors] = {};
  UpdateRecipe recipes[kBatchRecipes] = {};
  StoredView formats[kBatchFormats] = {};  // without addresses
};

// Selects a kernel: optimizer, arithmetic, storages.
struct UpdateKernel {
  uint8_t optimizer = 0;  // as in Optimizer
  bool narrow = false;
  Quick weight = Quick::none, state = Quick::none;  // none: any

  bool operator==(const UpdateKernel&) const = default;
};
// Whether there are specialised kernels for weights and state with these storages.
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

// Elements that a warp takes at a time, eight per lane: a block of scaled storage.
inline constexpr uint32_t kUpdateChunk = 256;

// Divides the work into blocks. To be called once all tensors are added.
void set_blocks(UpdateBatch& batch);
// Changes the tensors and reports, unless the step is skipped.
void update(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream);
void update_any(const UpdateKernel& kernel, const UpdateBatch& batch, Stream stream);

// Counts the weights that did not change.
void count_cancelled(const StoredView& weight, const float* before, const StepState* state,
                     UpdateCounts* counts, Stream stream);

}  // namespace ulp::cuda
