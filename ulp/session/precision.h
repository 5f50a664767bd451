// The engine's options for formats and rounding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ulp/numeric/format.h"
#include "ulp/numeric/rounding.h"
#include "ulp/precision/assignment.h"
#include "ulp/precision/candidates.h"
#include "ulp/precision/overrides.h"
#include "ulp/session/parameters.h"

namespace ulp {

struct PrecisionOptions {
  std::string policy = "fp32";
  Candidates candidates = make_candidates();
  bool keep_first_last = false;
  std::vector<FormatOverride> overrides = {};
  UpdateOptions updates = {};
  std::optional<FloatFormat> accumulator = {};  // of partial sums of products; none: fp32
  Overflow overflow = Overflow::saturate;       // inf: in the formats that have it
};

}  // namespace ulp
