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
struct SkinnyCall {
  SkinnyShape shape;
  bool halves = false;
  const void *a = nullptr, *b = nullptr;  // the operator's inputs
  const float* bias = nullptr;
  WriteView result;
  const StepState* state = nullptr;
};

// Whether results can be written that way.
bool skinny_writes(const WriteView& view);

void skinny_linear(const SkinnyCall& call, Stream stream);
void skinny_linear_grad_input(const SkinnyCall& call, Stream stream);
void skinny_linear_grad_weight(const SkinnyCall& call, Stream stream);

}  // namespace ulp::cuda
