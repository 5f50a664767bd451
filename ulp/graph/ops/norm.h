// Normalisation over a batch (each channel) and over a layer (each row). Statistics of a batch are
// fp32; running ones are state.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

// Batch norm is four operators, so that the elementwise ones can be computed inside what reads
// them. With n rows, and inv = 1 / sqrt(variance + epsilon):
// (x) -> mean, variance (channels): of all rows, variance divided by n.
extern const OpDef kBatchStats;
// (mean, variance) -> running mean and variance, in place: (1 - momentum) old + momentum new, the
// variance times n / (n - 1) where n > 1. Attributes: momentum, rows.
extern const OpDef kBatchTrack;
// (x, gamma, beta, mean, variance) -> out = (x - mean) (gamma inv) + beta. Attribute: epsilon. In
// inference mean and variance are the running ones.
extern const OpDef kBatchNorm;
// (dout, x, mean, variance) -> sum of dout, sum of dout (x - mean) inv (channels): the gradients of
// beta and gamma
extern const OpDef kBatchNormSums;
// (dout, x, gamma, mean, variance, the two sums) -> dx = (gamma inv) (dout - sum0 / n - ((x - mean)
// inv) (sum1 / n)). Attributes: epsilon, rows.
extern const OpDef kBatchNormGrad;

// (x, gamma, beta) -> out, mean, variance (rows): normalised over the last axis. Attribute:
// epsilon.
extern const OpDef kLayerNorm;
extern const OpDef kLayerNormGrad;        // (dout, x, gamma, mean, variance) -> dx
extern const OpDef kLayerNormGradWeight;  // (dout, x, mean, variance) -> dgamma, dbeta

}  // namespace ulp
