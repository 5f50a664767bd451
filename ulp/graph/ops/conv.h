// Convolutions of images.
#pragma once

#include <optional>
#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

// (x (n,h,w,c), weight (out,kernel_h,kernel_w,c/groups)[, bias (out)]) -> out. Attributes:
// stride_h, stride_w, padding_h, padding_w (on both sides, zeros), groups.
extern const OpDef kConv2d;
extern const OpDef kConv2dGradInput;   // (dout, weight) -> dx
extern const OpDef kConv2dGradWeight;  // (x, dout) -> dweight
// (dout) -> (channels), the sum over all rows: a bias's gradient.
extern const OpDef kChannelSum;

struct ConvOptions {
  int64_t out = 0;
  int64_t kernel = 1, stride = 1, padding = 0, groups = 1;
  bool bias = false;
  std::optional<Init> init =
      {};  // of the weight; normal with variance 2 / (kernel^2 out) unless said (the fan-out)
};

// Weights NAME.weight and NAME.bias.
TensorId conv2d(Builder& b, const std::string& name, TensorId x, const ConvOptions& options);

}  // namespace ulp
