// Stochastic rounding of arrays of fp32 numbers as fast as memory gives them, with the bits and range events of codec.h.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/backend/cuda/runtime/processors.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// What is written: codes, or the numbers that they stand for, as fp32 or, where it holds them, bf16.
enum class RandomForm : uint8_t { codes8, codes16, fp32, bf16 };

// Elements go in runs of four, a draw of random words each.
inline constexpr uint32_t kRandomRun = 4;

struct RandomCall {
  const StepState* state = nullptr;
  const float* in = nullptr;  // of run `first` on, as `out`
  uint8_t* out = nullptr;
  uint64_t first = 0, runs = 0;  // of the tensor
  QuickCodec codec = {};
  uint32_t number = 0;           // of the random words
  bool of_state = false;         // they do not depend on the micro-batch
  EncodeStats* stats = nullptr;  // null: not reported
  // Many that are done soon are faster than few that go on for long.
  uint32_t most_blocks = kProcessors * 32;
};

// Whether there is a kernel for it.
bool rounds_runs(const QuickCodec& codec, RandomForm form);
void round_runs(const RandomCall& call, RandomForm form, Stream stream);

}  // namespace ulp::cuda
