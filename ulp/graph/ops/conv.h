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

}  // namespace ulp
