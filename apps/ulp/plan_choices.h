// What `ulp plan` says about updates: the bytes of a parameter, and what other choices would take.
#pragma once

#include <string>

#include "ulp/session/engine.h"

namespace ulp {

// The bytes of a parameter under the engine's choice, and the peak and the extra work of each way
// to run backward.
std::string update_summary(const EngineOptions& options, const Engine& engine);

// The bytes of a parameter for every rule and every format of state, with the model and the
// optimizer of the options and the formats of the engine. So are those above: a policy is asked
// once.
std::string update_table(const EngineOptions& options, const Engine& engine);

}  // namespace ulp
