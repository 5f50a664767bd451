// All operators: the calls that models are written with, and the definitions.
#pragma once

#include "ulp/graph/ops/activation.h"  // IWYU pragma: export
#include "ulp/graph/ops/arithmetic.h"  // IWYU pragma: export
#include "ulp/graph/ops/batch.h"       // IWYU pragma: export
#include "ulp/graph/ops/conv.h"        // IWYU pragma: export
#include "ulp/graph/ops/loss.h"        // IWYU pragma: export
#include "ulp/graph/ops/matmul.h"      // IWYU pragma: export
#include "ulp/graph/ops/move.h"        // IWYU pragma: export
#include "ulp/graph/ops/norm.h"        // IWYU pragma: export
#include "ulp/graph/ops/pool.h"        // IWYU pragma: export
#include "ulp/graph/ops/source.h"      // IWYU pragma: export
#include "ulp/graph/ops/update.h"      // IWYU pragma: export
