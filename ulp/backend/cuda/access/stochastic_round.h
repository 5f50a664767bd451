// Stochastic rounding of fp32 arrays at memory speed, with the bits and range events of codec.h.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/runtime/processors.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// The form that is written: codes, or the values they stand for, as fp32 or, if it holds them, bf16.
enum class RandomForm : uint8_t { codes8, codes16, fp32, bf16 };

// Elements are processed in runs of four, with one draw of random words each.
inline constexpr uint32_t kRandomRun = 4;

struct RandomCall {
  const StepState* state = nullptr;
  const float* in = nullptr;  // from run `first` on, as is `out`
  uint8_t* out = nullptr;
  uint64_t first = 0, runs = 0;  // of the tensor
  QuickCodec codec = {};
  uint32_t number = 0;           // of the random words
  bool of_state = false;         // random words do not depend on the micro-batch
  EncodeStats* stats = nullptr;  // null: not reported
  // Many short blocks are faster than few long ones.
  uint32_t most_blocks = kProcessors * 32;
};

// Whether there is a kernel for it.
bool rounds_runs(const QuickCodec& codec, RandomForm form);
void round_runs(const RandomCall& call, RandomForm form, Stream stream);

}  // namespace ulp::cuda
