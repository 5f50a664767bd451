// Softmax, losses and what is counted beside them. A loss has one element (a term) for each example
// or position; training takes the gradient of their mean, weighted if the terms have weights.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

// (x) -> out; (dout, out) -> dx: over the last axis.
extern const OpDef kSoftmax, kSoftmaxGrad;
extern const OpDef kLogSoftmax, kLogSoftmaxGrad;  // the same
// (log probabilities (n,k), labels (n)) -> out (n) = -((1 - smoothing) logp[label] + smoothing / k
// sum of logp). A label that is no class throws an Error.
extern const OpDef kNll;
extern const OpDef kNllGrad;  // (dout, labels) -> dlogp
// (scores (n,k), labels (n)) -> out (n): both in one, with the same attribute
extern const OpDef kCrossEntropy;
extern const OpDef kCrossEntropyGrad;  // (dout, scores, labels) -> dscores
// (x (n, ...), target of the same shape) -> out (n): means over an example's elements
extern const OpDef kMse;                // of (x - t)^2
extern const OpDef kMseGrad;            // (dout, x, target) -> dx
extern const OpDef kBceWithLogits;      // of log(1 + e^x) - x t
extern const OpDef kBceWithLogitsGrad;  // (dout, x, target) -> dx
// (scores (n,k), labels (n), loss (n)) -> sums (2): the sum of the loss and the number of examples
// whose largest score (the first of equals) is their label's
extern const OpDef kClassify;

// (terms[, weights of the same shape in fp32]) -> sums (1): the sum of terms times weights
extern const OpDef kLossSum;

}  // namespace ulp
