// The engine's options for formats.
#pragma once

#include <string>
#include <vector>

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
};

}  // namespace ulp
