// Activation functions and dropout. All are elementwise, and backward reads what they wrote, never what they
// read: the input need not be kept.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

// (x) -> out; gradients (dout, out) -> dx.
extern const OpDef kRelu, kReluGrad;            // dx = dout where out > 0, else 0
extern const OpDef kLeakyRelu, kLeakyReluGrad;  // slope (positive): out = x, or slope x where x < 0
extern const OpDef kTanh, kTanhGrad;            // dx = dout (1 - out out)
extern const OpDef kSigmoid, kSigmoidGrad;      // dx = dout (out (1 - out))
// (x) -> out, p: element i is 0 where its random word is below floor(p 2^32), else x / (1 - p). The words are
// those of the stream `tensor`, the number of the output, so that the gradient (dout) -> dx draws the same
// ones and no mask is kept.
extern const OpDef kDropout, kDropoutGrad;

TensorId relu(Builder& b, const std::string& name, TensorId x);
TensorId leaky_relu(Builder& b, const std::string& name, TensorId x, double slope);
TensorId tanh(Builder& b, const std::string& name, TensorId x);
TensorId sigmoid(Builder& b, const std::string& name, TensorId x);
// In inference it is its input. p in [0, 1).
TensorId dropout(Builder& b, const std::string& name, TensorId x, double p);

}  // namespace ulp
