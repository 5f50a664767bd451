// Settings of a session as the configuration of a run, which knows all options.
#pragma once

#include "ulp/run/config.h"
#include "ulp/session.h"

namespace ulp {

// The defaults are those of `ulp train`, but the schedule, which is constant unless the settings say
// how many steps there are. Throws an Error for a name that is unknown or of a run alone, and for
// values that make no sense.
RunConfig config_of(const SessionOptions& options);

// What decides a session's bits, as checkpoints keep it.
std::string session_text(const RunConfig& config, const SessionOptions& options);

}  // namespace ulp
