// Operators that only move numbers.
#pragma once

#include <string>
#include <vector>

#include "ulp/graph/builder.h"

namespace ulp {

// Views: the output has its input's codes, so it is no tensor of its own in the papers' sense.
extern const OpDef kReshape;  // (x) -> out: rank, extent0 ...: the same bytes
// (x) -> out: groups: channel g (c / groups) + i goes to i groups + g.
extern const OpDef kChannelShuffle;
extern const OpDef
    kTranspose;  // (x) -> out: axis0 ...: out's axis i is x's axis `axis i` (axes in memory order)

// Tensors of their own, with formats of their own.
// Both go along `axis`, the last one where the node has none.
extern const OpDef kConcat;  // (two or more) -> out
// (x) -> out0, out1 ...: `parts` equal ones; in backward, as the outputs are.
extern const OpDef kSplit;

// How concat and split see a tensor: the axes before theirs count rows, the others make up a row.
// What is joined is rows of one number and of several widths.
struct JoinedRows {
  size_t count;
  int64_t width;
};
JoinedRows joined_rows(const Node& node, const Shape& shape);

}  // namespace ulp
