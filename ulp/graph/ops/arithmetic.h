// Sums, products and copies. All elementwise, but for sums in which an operand is repeated.
#pragma once

#include <array>
#include <string>

#include "ulp/graph/builder.h"

namespace ulp {

extern const OpDef kAdd;       // (a, b) -> out
extern const OpDef kMultiply;  // (a, b) -> out
// (a, b) -> out, of different shapes: each is repeated over the axes that it lacks or has once.
extern const OpDef kBroadcastAdd;
// For gradients:
extern const OpDef kSum;   // (two or more) -> out, added in fp32 from left to right
extern const OpDef kCopy;  // (a) -> out, in out's own format
extern const OpDef kSeed;  // () -> out, `value` times the loss scale everywhere
// (dout) -> dx: of each element the sum over its repetitions.
extern const OpDef kBroadcastSum;

// Where the elements of a tensor lie that is repeated over a larger one: the larger one's extents,
// axes of extent 1 before them, and how far an axis moves in the smaller, 0 where it is repeated.
struct Repetition {
  std::array<int64_t, Shape::kMaxRank> extent, stride;
};
Repetition repetition(const Shape& smaller, const Shape& larger);

}  // namespace ulp
