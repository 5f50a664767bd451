// Sums, products and copies. All elementwise.
#pragma once

#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

extern const OpDef kAdd;       // (a, b) -> out
extern const OpDef kMultiply;  // (a, b) -> out
// For gradients:
extern const OpDef kSum;   // (two or more) -> out, added in fp32 from left to right
extern const OpDef kCopy;  // (a) -> out, in out's own format
extern const OpDef kSeed;  // () -> out, `value` times the loss scale everywhere

}  // namespace ulp
