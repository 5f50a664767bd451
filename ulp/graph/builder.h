// How a Builder (ulp/network.h) and the operators' calls (ulp/operators.h) reach the graph. What
// makes an operator stands in ulp/graph/ops.
#pragma once

#include "ulp/graph/graph.h"
#include "ulp/graph/op.h"
#include "ulp/operators.h"  // IWYU pragma: export
