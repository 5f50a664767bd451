// Pooling of images.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

// Attributes of both: kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w. (x) -> out,
// index: the largest number of each window that lies in the image; index (bytes) is its place in
// the window, row by row, the first of equals; a NaN counts as larger than any number, the first
// one wins.
extern const OpDef kMaxPool;
extern const OpDef
    kMaxPoolGrad;  // (dout, index) -> dx: what the windows send to a pixel, added up in their order
// (x) -> out: the sum of each window divided by its size, padding counted as zeros
extern const OpDef kAvgPool;
extern const OpDef kAvgPoolGrad;  // (dout) -> dx
// (x (n,h,w,c)) -> out (n,c)
extern const OpDef kGlobalAverage;
extern const OpDef kGlobalAverageGrad;  // (dout) -> dx

}  // namespace ulp
