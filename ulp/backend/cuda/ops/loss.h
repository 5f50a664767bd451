// Softmax, losses and counting. Everything between the numbers that are read and those that are written is double, in an order
// that depends on shapes alone.
//
// A label that is no class cannot be reported from a device: the example's loss and gradient are NaN, and it is not counted as
// right. Labels are checked where they are fed.
#pragma once

#include <cstdint>

#include "ulp/backend/cuda/access/view.h"
#include "ulp/tensor/device.h"

namespace ulp::cuda {

// What makes a row of numbers from a row, and a number from a row.
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
  uint32_t width = 0;        // of a row: classes, or elements of an example
  double rest = 0, top = 0;  // what a smoothed label puts on every class, and on its own in addition
};

void map_rows(RowMap map, const LossViews& views, const WriteView& out, const StepState* state,
              Stream stream);
void sum_rows(RowLoss loss, const LossViews& views, const WriteView& out, const StepState* state,
              Stream stream);
// The gradients of mse and bce_with_logits: dout of each example, and x and target, `width` elements each.
void target_grad(RowLoss loss, const StoredView& dout, const StoredView& x, const StoredView& target,
                 uint32_t width, const WriteView& out, const StepState* state, Stream stream);
// The sum of the losses (b), and how many rows of scores (a) have their largest at the label.
void classify(const LossViews& views, const WriteView& out, const StepState* state, Stream stream);

}  // namespace ulp::cuda
