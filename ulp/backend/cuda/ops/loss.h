// Softmax, losses and counting. Everything between reading and writing is in double, in an order
// that depends on shapes alone.
//
// A label that is no class cannot be reported from a device: the example's loss and gradient become
// NaN, and it does not count as correct. Labels are checked where they are fed.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// Operators that map a row to a row, and a row to a number.
enum class RowMap : uint8_t {
  softmax,
  softmax_grad,
  log_softmax,
  log_softmax_grad,
  nll_grad,
  cross_entropy_grad
};
enum class RowLoss : uint8_t { nll, cross_entropy, mse, bce_with_logits };

struct LossViews {
  StoredView a, b;  // the real inputs, in the operator's order
  const int32_t* labels = nullptr;
  uint64_t rows = 0;
  uint32_t width = 0;  // of a row: classes, or elements of an example
  // Label smoothing: the weight of every class, and the extra weight of the label's.
  double rest = 0, top = 0;
};

void map_rows(RowMap map, const LossViews& views, const WriteView& out, const StepState* state,
              Stream stream);
void sum_rows(RowLoss loss, const LossViews& views, const WriteView& out, const StepState* state,
              Stream stream);
// The gradients of mse and bce_with_logits: dout of each example, and x and target with `width`
// elements each.
void target_grad(RowLoss loss, const StoredView& dout, const StoredView& x, const StoredView& target,
                 uint32_t width, const WriteView& out, const StepState* state, Stream stream);
// The sum of the terms (a), each times its weight (b, if it has elements).
void sum_terms(const LossViews& views, const WriteView& out, const StepState* state, Stream stream);
// The sum of the losses (b), and how many rows of scores (a) have their maximum at the label.
void classify(const LossViews& views, const WriteView& out, const StepState* state, Stream stream);

}  // namespace ulp::cuda
