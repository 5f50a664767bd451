// The products of a small linear layer, such as a classifier, each in one launch: a library's
// overhead (padding, fp32 arrays, encoding, adding the bias) takes longer than these sums. Sums are
// fp32, in an order that depends on shapes alone.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

struct SkinnyShape {
  uint32_t rows = 1, in = 1, out = 1;
};

// Activations and gradients are fp32, or with `halves` codes that are the upper halves of fp32
// patterns; weight and bias are fp32. Results are written as single elements (single.h).
struct SmallCall {
  SkinnyShape shape;
  bool halves = false;
  const void *a = nullptr, *b = nullptr;  // the operator's inputs
  const float* bias = nullptr;
  WriteView result;
  const StepState* state = nullptr;
};

// Whether results can be written that way.
bool small_writes(const WriteView& view);

void small_linear(const SmallCall& call, Stream stream);
void small_linear_grad_input(const SmallCall& call, Stream stream);
void small_linear_grad_weight(const SmallCall& call, Stream stream);

}  // namespace ulp::cuda
